"""Answers about inputs, in batches: label, probability, and three ways to be unsure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.waves.arrays import ArrayExamples
from ucb.waves.calibration import Answers
from ucb.waves.sources import Examples, Skipped, unlabelled
from ucb.waves.watching import Watcher

if TYPE_CHECKING:
    from ucb.waves.model import Model

ROWS = 512
NUMBERS = 1 << 24
"""Logits that are held at a time: with many classes the batches are smaller."""


@dataclass(frozen=True)
class Predicted:
    """One row for each input that could be read, and what could not."""

    rows: list[dict[str, Any]]
    skipped: list[Skipped]
    remarks: list[str]


def predict(
    model: Model, data: Sequence[str | Path] | Tensor | Examples, *, watcher: Watcher | None = None
) -> Predicted:
    """Answer for paths, tensors or examples; the order is that of the inputs."""
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
    return Predicted(rows, list(examples.skipped), list(examples.remarks))


def inputs(model: Model, data: Sequence[str | Path] | Tensor | Examples) -> Examples:
    """Return inputs in the model's shape."""
    model.known  # noqa: B018 (a model without a wave is refused before anything is read)
    assert model.shape is not None
    if isinstance(data, Tensor):
        examples: Examples = ArrayExamples(data)
    elif isinstance(data, str | Path):
        examples = unlabelled([str(data)], model.shape, columns=model.columns)
    elif isinstance(data, Sequence):
        examples = unlabelled([str(each) for each in data], model.shape, columns=model.columns)
    else:
        examples = data
    if tuple(examples.shape) != tuple(model.shape):
        raise ValueError(f"the inputs have shape {tuple(examples.shape)}, and the model knows {tuple(model.shape)}")
    return examples


def answered(model: Model, examples: Examples, watcher: Watcher | None = None) -> Any:
    """Yield the positions of batches of examples, and the answers to them."""
    samples_and_classes = 32 * len(model.classes)
    rows, done = max(1, min(ROWS, NUMBERS // samples_and_classes)), 0
    for positions, x in examples.batches(torch.arange(len(examples)), rows):
        yield positions, answers_to(model, x)
        done += len(positions)
        if watcher is not None:
            watcher.moved(done, len(examples))


def answers_to(model: Model, x: Tensor) -> Answers:
    """Return the calibrated answers to a batch."""
    return model.calibration.answers(model.known.opinion(x))
