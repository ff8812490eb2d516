"""What a model makes of inputs: label, probability, and three ways to be unsure; and what it knows at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ucb.data.readers import ExampleReader, Skipped
from ucb.incremental.calibration import CalibratedPrediction, rows_per_batch
from ucb.incremental.inputs import Data, Inputs, read_labelled, read_unlabelled
from ucb.incremental.model import Model
from ucb.incremental.waves import percent
from ucb.observer import Observer


class Predictions(list[dict[str, Any]]):
    """One row for each input that could be read; ``skipped`` names the others and why, ``remarks`` are sentences."""

    def __init__(self, rows: Iterable[dict[str, Any]], skipped: Iterable[Skipped], remarks: Iterable[str]) -> None:
        super().__init__(rows)
        self.skipped, self.remarks = list(skipped), list(remarks)


def predict(model: Model, data: Inputs, *, observer: Observer | None = None) -> Predictions:
    """Answer for paths, arrays or examples; the order is that of the inputs."""
    examples = read_unlabelled(model, data)
    names, rows = examples.names, []
    for positions, found in predict_batches(model, examples, observer):
        probability, label = found.prediction.probabilities.max(1)
        columns = {
            "file": [names[place] for place in positions.tolist()],
            "label": [model.classes[number] for number in label.tolist()],
            "probability": probability.tolist(),
            "entropy": found.prediction.entropy.tolist(),
            "mutual_information": found.prediction.mutual_information.tolist(),
            "unsure": found.unsure.tolist(),
        }
        rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return Predictions(rows, examples.skipped, examples.remarks)


def predict_batches(
    model: Model, examples: ExampleReader, observer: Observer | None = None
) -> Iterator[tuple[Tensor, CalibratedPrediction]]:
    """Yield the positions of batches of examples, and their predictions."""
    rows, done = rows_per_batch(math.prod(examples.shape) + model.known.values_per_row), 0
    for positions, x in examples.batches(torch.arange(len(examples)), rows):
        yield positions, predict_batch(model, x)
        done += len(positions)
        if observer is not None:
            observer.moved(done, len(examples))


def predict_batch(model: Model, x: Tensor) -> CalibratedPrediction:
    """Return calibrated predictions of a batch; weights from a stranger's file can be too large to be reckoned with."""
    found = model.calibration.calibrate(model.known.predict_raw(x))
    prediction = found.prediction
    if not all(bool(part.isfinite().all()) for part in (prediction.probabilities, prediction.mutual_information)):
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
            }
            for wave in model.waves
        ],
        "scale": model.calibration.scale,
        "unsure_above": model.calibration.threshold,
        **(model.known if model.learner is None else model.learner).certainty(),
    }


def check_forgetting(model: Model, data: Data, observer: Observer | None = None) -> dict[str, Any]:
    """Return the accuracy by class and by wave, now and when each was learnt, in percent. The model is not changed."""
    model.known  # noqa: B018 (a model without a wave is refused before anything is read)
    examples = read_labelled(model, data, model.label)
    assert examples.labels is not None
    target = model.numbers_of(examples.labels)
    asked, right, unsure = Counter[str](), Counter[str](), Counter[str]()
    for positions, found in predict_batches(model, examples, observer):
        columns = (positions, target[positions], found.prediction.label.cpu(), found.unsure.cpu())
        for place, number, given, doubted in zip(*(column.tolist() for column in columns), strict=True):
            name = examples.labels[place]
            asked[name] += 1
            right[name] += number == given
            unsure[name] += doubted

    def accuracy(names: Iterable[str]) -> float | None:
        return percent((asked[name], right[name]) for name in names)

    known = [name for name in model.classes if asked[name]]
    waves = [wave for wave in model.waves if any(asked[name] for name in wave.examples)]
    then = {name: percent(wave.held_out.get(name, (0, 0)) for wave in model.waves) for name in known}
    classes = [{"class": each, "asked": asked[each], "now": accuracy([each]), "then": then[each]} for each in known]
    unknown = sorted(set(asked) - set(model.classes))
    return {
        "classes": classes,
        "waves": [
            {
                "wave": wave.name,
                "asked": sum(asked[name] for name in wave.examples),
                "now": accuracy(wave.examples),
                "then": wave.accuracy,
            }
            for wave in waves
        ],
        "accuracy": accuracy(known),
        "asked": sum(asked[name] for name in known),
        "unsure": sum(unsure[name] for name in known),
        "unknown_classes": {name: {"asked": asked[name], "unsure": unsure[name]} for name in unknown},
        "skipped": [{"file": one.name, "why": one.why} for one in examples.skipped],
        "remarks": list(examples.remarks),
    }
