"""What a model makes of inputs: label, probability, and how much there is to doubt; and what it knows at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ucb import checks
from ucb.data.readers import ExampleReader, Skipped
from ucb.incremental.calibration import CalibratedPrediction, rows_per_batch
from ucb.incremental.inputs import Data, Inputs, read_labelled, read_unlabelled, warnings_about
from ucb.incremental.model import Model
from ucb.incremental.trunks import OWN
from ucb.incremental.waves import describe_change, list_choices, percent
from ucb.observer import Observer

CPU = torch.device("cpu")
ROWS_OF_DEEP_NETS = 32
"""Images that are judged together where each takes long, so that the time left is known soon."""


class Predictions(list[dict[str, Any]]):
    """One row for each input that could be read; ``skipped`` names the others and why, ``remarks`` are sentences."""

    def __init__(self, rows: Iterable[dict[str, Any]], skipped: Iterable[Skipped], remarks: Iterable[str]) -> None:
        super().__init__(rows)
        self.skipped, self.remarks = list(skipped), list(remarks)


@dataclass(frozen=True)
class Question:
    """What is asked about each input, beside the label and how sure the model is of it."""

    top: int | None = None
    """How many of the most probable labels are named."""
    all_probabilities: bool = False
    threshold: float | None = None
    """The doubt above which an answer is called unsure; without one it is the model's own."""

    def __post_init__(self) -> None:
        if self.top is not None:
            checks.count("top", self.top)
        if self.threshold is not None:
            checks.not_negative("threshold", self.threshold)


def predict(model: Model, data: Inputs, question: Question, observer: Observer | None = None) -> Predictions:
    """Answer for paths, arrays or examples; the order is that of the inputs."""
    examples = read_unlabelled(model, data)
    return Predictions(answer(model, examples, question, observer), examples.skipped, examples.remarks)


def answer(
    model: Model, examples: ExampleReader, question: Question, observer: Observer | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each example that can be read; no more than a batch of them is in memory."""
    names, classes = examples.names, model.classes
    for positions, found in predict_batches(model, examples, observer):
        probabilities, doubt = found.prediction.probabilities, found.unsureness
        probability, label = probabilities.max(1)
        unsure = found.unsure if question.threshold is None else doubt > question.threshold
        columns = {
            "file": [names[place] for place in positions.tolist()],
            "label": [classes[number] for number in label.tolist()],
            "probability": probability.tolist(),
            "entropy": found.prediction.entropy.tolist(),
            "mutual_information": found.prediction.mutual_information.tolist(),
            "unsure": unsure.tolist(),
            "doubt": doubt.tolist(),
        }
        if question.top is not None:
            columns["top"] = _name_most_probable(classes, probabilities, label, question.top)
        if question.all_probabilities:
            columns["probabilities"] = [dict(zip(classes, row, strict=True)) for row in probabilities.tolist()]
        for row in zip(*columns.values(), strict=True):
            yield dict(zip(columns, row, strict=True))


def _name_most_probable(
    classes: Sequence[str], probabilities: Tensor, label: Tensor, number: int
) -> list[list[dict[str, Any]]]:
    """Return the most probable labels of each row with their probabilities; the one that is the answer comes first."""
    order = probabilities.scatter(1, label[:, None], 2.0).topk(min(number, len(classes))).indices
    rows = zip(order.tolist(), probabilities.gather(1, order).tolist(), strict=True)
    return [[{"label": classes[c], "probability": p} for c, p in zip(*row, strict=True)] for row in rows]


def predict_batches(
    model: Model, examples: ExampleReader, observer: Observer | None = None
) -> Iterator[tuple[Tensor, CalibratedPrediction]]:
    """Yield the positions of batches of examples, and their predictions."""
    rows, done = rows_per_batch(math.prod(examples.shape) + model.known.values_per_row), 0
    is_deep = len(examples.shape) == 3 and model.trunk not in (None, OWN)
    if is_deep and getattr(model.known, "device", CPU) == CPU:
        rows = min(rows, ROWS_OF_DEEP_NETS)
    if observer is not None:
        observer.moved(0, len(examples))
    for positions, x in examples.batches(torch.arange(len(examples)), rows):
        yield positions, predict_batch(model, x)
        done += len(positions)
        if observer is not None:
            observer.moved(done, len(examples))


def predict_batch(model: Model, x: Tensor) -> CalibratedPrediction:
    """Return calibrated predictions of a batch; weights from a stranger's file can be too large to be reckoned with."""
    found = model.calibration.calibrate(model.known.predict_raw(x))
    prediction = found.prediction
    figures = (prediction.probabilities, prediction.mutual_information, found.unsureness)
    if not all(bool(part.isfinite().all()) for part in figures):
        raise RuntimeError("the model gives no probability for some inputs: its file is damaged")
    return found


def describe(model: Model) -> dict[str, Any]:
    """Return what `show` says of a model: waves, classes, how certain each layer is, and what room is left."""
    learnt: Counter[str] = Counter(dict.fromkeys(model.classes, 0))
    for wave in model.waves:
        learnt.update(wave.examples)
    return {
        "method": model.method,
        "net": model.net,
        "input": list(model.shape or ()),
        "classes": dict(learnt),
        "waves": [
            {
                "name": wave.name,
                "classes": list(wave.examples),
                "examples": sum(wave.examples.values()),
                "held_out": sum(asked for asked, _ in wave.held_out.values()),
                "accuracy": wave.accuracy,
                "date": wave.date or None,
                "largest_effect": _describe_effect(wave.largest_effect),
                "keeps_sums": wave.sums is not None,
            }
            for wave in model.waves
        ],
        "scale": model.calibration.scale,
        "unsure_above": model.calibration.threshold,
        **(model.known if model.learner is None else model.learner).certainty(),
    }


class EarlierChoices:
    """How many examples are judged right if the model chooses among the classes that a wave had to choose from."""

    def __init__(self, model: Model) -> None:
        self.own = [model.numbers_of(wave.examples) for wave in model.waves]
        self.choices = [torch.tensor(list_choices(wave.choices), dtype=torch.int64) for wave in model.waves]
        self.right = torch.zeros(len(model.waves), len(model.classes), dtype=torch.int64)
        """For each wave and class; 0 where the wave does not have the class."""

    def count(self, probabilities: Tensor, target: Tensor) -> None:
        """Take in a batch."""
        for right, own, choices in zip(self.right, self.own, self.choices, strict=True):
            rows = torch.isin(target, own)
            given = choices[probabilities[rows][:, choices].argmax(1)]
            right += torch.bincount(given[given == target[rows]], minlength=len(right))


def _describe_effect(effect: tuple[str, float] | None) -> dict[str, Any] | None:
    """Return the earlier wave that felt a wave most, and how much."""
    return None if effect is None else {"wave": effect[0], "change": effect[1], "words": describe_change(effect[1])}


def check_forgetting(model: Model, data: Data, observer: Observer | None = None) -> dict[str, Any]:
    """Return the accuracy by class and by wave, now and when each was learnt, in percent. The model is not changed.

    ``then`` was measured with the classes known then to choose from, and so is ``now_as_then``; ``now`` with all. Of a
    class that several waves have, ``now_as_then`` is their mean, with the weights that ``then`` gives them.
    """
    model.known  # noqa: B018 (a model without a wave is refused before anything is read)
    examples = read_labelled(model, data, model.label)
    assert examples.labels is not None
    target = model.numbers_of(examples.labels)
    asked, right, unsure = Counter[str](), Counter[str](), Counter[str]()
    earlier = EarlierChoices(model)
    for positions, found in predict_batches(model, examples, observer):
        earlier.count(found.prediction.probabilities.cpu(), target[positions])
        columns = (positions, target[positions], found.prediction.label.cpu(), found.unsure.cpu())
        for place, number, given, doubted in zip(*(column.tolist() for column in columns), strict=True):
            name = examples.labels[place]
            asked[name] += 1
            right[name] += number == given
            unsure[name] += doubted

    def accuracy(names: Iterable[str]) -> float | None:
        return percent((asked[name], right[name]) for name in names)

    def accuracy_of_class(number: int, name: str) -> float | None:
        measured = [wave.held_out.get(name, (0, 0))[0] for wave in model.waves]
        mean = sum(float(hits) * held for hits, held in zip(earlier.right[:, number], measured, strict=True))
        return 100 * mean / (asked[name] * sum(measured)) if any(measured) else None

    known = [name for name in model.classes if asked[name]]
    unknown = sorted(set(asked) - set(model.classes))
    return {
        "classes": [
            {
                "class": name,
                "asked": asked[name],
                "now": accuracy([name]),
                "now_as_then": accuracy_of_class(number, name),
                "then": percent(wave.held_out.get(name, (0, 0)) for wave in model.waves),
            }
            for number, name in enumerate(model.classes)
            if asked[name]
        ],
        "waves": [
            {
                "wave": wave.name,
                "asked": (own := sum(asked[name] for name in wave.examples)),
                "now": accuracy(wave.examples),
                "now_as_then": 100 * int(right_then.sum()) / own,
                "then": wave.accuracy,
            }
            for wave, right_then in zip(model.waves, earlier.right, strict=True)
            if any(asked[name] for name in wave.examples)
        ],
        "accuracy": accuracy(known),
        "asked": sum(asked[name] for name in known),
        "unsure": sum(unsure[name] for name in known),
        "unknown_classes": {name: {"asked": asked[name], "unsure": unsure[name]} for name in unknown},
        "skipped": [{"file": one.name, "why": one.why} for one in examples.skipped],
        "remarks": [*warnings_about(examples), *examples.remarks],
    }
