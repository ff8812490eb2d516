"""Answers about inputs, in batches: label, probability, and three ways to be unsure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.data.readers import ExampleReader as Examples
from ucb.data.readers import Skipped, unlabelled
from ucb.waves.arrays import Array, ArrayExamples
from ucb.waves.calibration import Answers
from ucb.waves.opinion import rows_together
from ucb.waves.watching import Watcher

if TYPE_CHECKING:
    from ucb.waves.model import Model

Inputs = str | Path | Sequence[str | Path] | Array | Examples
"""Paths, inputs in memory, or examples that are read when they are asked for."""


class Predicted(list[dict[str, Any]]):
    """One row for each input that could be read; ``skipped`` names the others and why, ``remarks`` are sentences."""

    def __init__(self, rows: Iterable[dict[str, Any]], skipped: Iterable[Skipped], remarks: Iterable[str]) -> None:
        super().__init__(rows)
        self.skipped, self.remarks = list(skipped), list(remarks)


def predict(model: Model, data: Inputs, *, watcher: Watcher | None = None) -> Predicted:
    """Answer for paths, arrays or examples; the order is that of the inputs."""
    examples = inputs(model, data)
    names, rows = examples.names, []
    for positions, answers in answered(model, examples, watcher):
        p, label = answers.prediction.probabilities.max(1)
        columns = zip(
            positions.tolist(),
            label.tolist(),
            p.tolist(),
            answers.prediction.entropy.tolist(),
            answers.prediction.mutual_information.tolist(),
            answers.unsure.tolist(),
            strict=True,
        )
        for place, number, probability, entropy, information, unsure in columns:
            rows.append(
                {
                    "file": names[place],
                    "label": model.classes[number],
                    "probability": probability,
                    "entropy": entropy,
                    "mutual_information": information,
                    "unsure": unsure,
                }
            )
    return Predicted(rows, examples.skipped, examples.remarks)


def inputs(model: Model, data: Inputs) -> Examples:
    """Return inputs in the model's shape."""
    model.known  # noqa: B018 (a model without a wave is refused before anything is read)
    assert model.shape is not None
    if isinstance(data, Examples):
        examples = data
    elif isinstance(data, str | Path):
        examples = unlabelled([str(data)], model.shape, columns=model.columns)
    elif isinstance(data, Sequence):
        examples = unlabelled(_paths(data), model.shape, columns=model.columns)
    else:
        examples = ArrayExamples(data)
    if tuple(examples.shape) != tuple(model.shape):
        raise ValueError(f"the inputs have shape {tuple(examples.shape)}, and the model knows {tuple(model.shape)}")
    return examples


def _paths(data: Sequence[str | Path]) -> list[str]:
    if not all(isinstance(each, str | Path) for each in data):
        raise ValueError("inputs must be paths, or one array of numpy or tensor with all of them")
    return [str(each) for each in data]


def answered(model: Model, examples: Examples, watcher: Watcher | None = None) -> Iterator[tuple[Tensor, Answers]]:
    """Yield the positions of batches of examples, and the answers to them."""
    rows, done = rows_together(math.prod(examples.shape) + model.known.numbers_a_row), 0
    for positions, x in examples.batches(torch.arange(len(examples)), rows):
        yield positions, answers_to(model, x)
        done += len(positions)
        if watcher is not None:
            watcher.moved(done, len(examples))


def answers_to(model: Model, x: Tensor) -> Answers:
    """Return the calibrated answers to a batch; weights from a stranger's file can be too large to be reckoned with."""
    answers = model.calibration.answers(model.known.opinion(x))
    prediction = answers.prediction
    if not all(bool(part.isfinite().all()) for part in (prediction.probabilities, prediction.mutual_information)):
        raise RuntimeError("the model gives no probability for some inputs: its file is damaged")
    return answers
