"""Examples to learn from or to predict, in whatever form they come: paths, arrays in memory, or examples themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ucb.data.readers import ExampleReader, Shape, Skipped, open_labelled, open_unlabelled
from ucb.data.readers.reader import quote
from ucb.incremental.checked_file import LONGEST_NAME, check_text

if TYPE_CHECKING:
    from ucb.incremental.model import Model

ROWS = 256
"""Examples that are read and learnt together."""
PORTION = 8 * ROWS
"""Examples between two places where work can be taken up again."""
WANTED = "uint8 images [n, 1 or 3, height, width] or rows of numbers [n, columns]"

Array = Tensor | npt.NDArray[Any]
Labels = Sequence[str] | Array
Data = str | Path | ExampleReader | tuple[Array, Labels]
"""A folder or a file, examples, or a pair of inputs and labels."""
Inputs = str | Path | Sequence[str | Path] | Array | ExampleReader
"""Paths, inputs in memory, or examples that are read when they are asked for."""


class ArrayExamples:
    """``x`` as uint8 [n, C, H, W] or numbers [n, F], and the class of each as text, where it is known."""

    def __init__(self, x: Array, labels: Labels | None = None, columns: list[str] | None = None) -> None:
        self.x = _check_array(x)
        self.shape = tuple(self.x.shape[1:])
        self.labels = None if labels is None else _as_names(labels, len(self.x))
        self.columns = columns
        self.skipped: list[Skipped] = []
        self.remarks: list[str] = []

    @property
    def names(self) -> list[str]:
        """Call each by its number."""
        return [f"row {number}" for number in range(1, len(self) + 1)]

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and examples."""
        for some in indices.split(size):
            if len(some):
                yield some, self.x[some]

    def stamps(self) -> list[str]:
        """Let the content be part of the fingerprint."""
        return [hashlib.sha256(self.x.contiguous().numpy().tobytes()).hexdigest()]


def read_labelled(model: Model, data: Data, label: str | None = None) -> ExampleReader:
    """Return labelled examples, in the model's shape where one is settled."""
    like, columns = model.shape, model.columns
    if isinstance(data, str | Path):
        examples = open_labelled(Path(data), like, label=label, columns=columns, kinds=model.kinds)
    elif isinstance(data, ExampleReader):
        examples = data
    elif isinstance(data, tuple) and len(data) == 2:
        examples = ArrayExamples(*data)
    else:
        raise ValueError(f"data must be a folder, a file, or a pair of inputs and labels, not {type(data).__name__}")
    if examples.labels is None:
        raise ValueError("the examples have no labels to learn from")
    _check_shape("examples", examples.shape, model)
    _check_gaps(examples, model)
    if len(examples) == 0:
        raise ValueError("there are no examples")
    for name in set(examples.labels):
        if not 0 < len(name) <= LONGEST_NAME:  # the model's file could not be read again
            said = f"1 to {LONGEST_NAME} characters, not {len(name)}: {name[:30]!r}"
            raise ValueError(f"the name of a class must have {said}")
        check_text(f"the name {name[:30]!r} of a class", name)
    return examples


def warnings_about(examples: ExampleReader) -> list[str]:
    """Return why the labels of examples may be others than what the user means, where their reader has doubts."""
    return list(getattr(examples, "warnings", ()))


def read_unlabelled(model: Model, data: Inputs) -> ExampleReader:
    """Return inputs in the model's shape."""
    model.known  # noqa: B018 (a model without a wave is refused before anything is read)
    assert model.shape is not None
    if isinstance(data, ExampleReader):
        examples = data
    elif isinstance(data, str | Path | Sequence):
        paths = [data] if isinstance(data, str | Path) else data
        if not all(isinstance(each, str | Path) for each in paths):
            raise ValueError("inputs must be paths, or one array of numpy or tensor with all of them")
        named = [str(each) for each in paths]
        examples = open_unlabelled(named, model.shape, columns=model.columns, kinds=model.kinds)
    else:
        examples = ArrayExamples(data)
    _check_shape("inputs", examples.shape, model)
    _check_gaps(examples, model)
    return examples


def _check_shape(what: str, shape: Shape, model: Model) -> None:
    """Refuse examples that are not of the model's shape; a trunk that resizes images takes any image."""
    is_alike = len(shape) == 3 if model.resizes else model.shape in (None, tuple(shape))
    if not is_alike and model.kinds is not None:
        raise ValueError(
            f"the model learnt a table with text, dates or missing values: give the {what} as such a table"
        )
    if not is_alike:
        known = "images" if model.resizes else tuple(model.shape or ())
        raise ValueError(f"the {what} have shape {tuple(shape)}, and the model knows {known}")


def _check_gaps(examples: ExampleReader, model: Model) -> None:
    """Refuse missing values where a module of the user's would have to make something of them."""
    if isinstance(model.trunk, nn.Module) and (missing := getattr(examples, "missing", [])):
        raise ValueError(f"a module as the trunk takes no missing values, and there are some in {quote(missing)}")


def split_portions(
    examples: ExampleReader, rows: Tensor, done: int = 0
) -> Iterator[tuple[int, Iterator[tuple[Tensor, Tensor]]]]:
    """Yield portions of the examples ``rows``, each as batches, with how many are done once it has been read."""
    for some in rows[done:].split(PORTION):
        if len(some):
            done += len(some)
            yield done, examples.batches(some, ROWS)


def _check_array(x: Array) -> Tensor:
    """Return images or rows as a tensor, if they are what they must be."""
    kind, shape = getattr(x, "dtype", type(x).__name__), tuple(getattr(x, "shape", ()))
    if isinstance(x, np.ndarray) and x.dtype.kind in "buif":
        with np.errstate(over="ignore"):
            x = torch.from_numpy(np.require(x, np.uint8 if x.dtype == np.uint8 else np.float32, ["C", "W"]))
    if isinstance(x, Tensor) and not x.is_complex() and 0 not in shape[1:]:
        if x.dim() == 4 and x.dtype == torch.uint8 and shape[1] in (1, 3):
            return x
        if x.dim() == 2 and x.dtype != torch.uint8:
            rows = x.float()
            if odd := (~rows.isfinite()).any(1).nonzero().flatten().tolist():
                said = f"{len(odd)} of {len(rows)} rows hold NaN, infinity or a number too large"
                raise ValueError(f"{said}; the first is row {odd[0] + 1}")
            return rows
    raise ValueError(f"examples must be {WANTED}, not {kind} of {shape}")


def _as_names(labels: Labels, number: int) -> list[str]:
    """Return labels as text."""
    if isinstance(labels, Tensor | np.ndarray) and labels.ndim == 1:
        labels = labels.tolist()
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ValueError(f"labels must be a list with the class of each of the {number} examples")
    if len(labels) != number:
        raise ValueError(f"{number} examples need as many labels, not {len(labels)}")
    return [str(label) for label in labels]
