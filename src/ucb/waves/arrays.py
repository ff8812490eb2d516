"""Examples that are in memory already: for Python programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucb.data.readers import Skipped

Array = Tensor | npt.NDArray[Any]
Labels = Sequence[str] | Array
WANTED = "uint8 images [n, 1 or 3, height, width] or rows of numbers [n, columns]"


class ArrayExamples:
    """``x`` as uint8 [n, C, H, W] or numbers [n, F], and the class of each as text, where it is known."""

    def __init__(self, x: Array, labels: Labels | None = None, columns: list[str] | None = None) -> None:
        self.x = _checked(x)
        self.shape = tuple(self.x.shape[1:])
        self.labels = None if labels is None else _names(labels, len(self.x))
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


def _checked(x: Array) -> Tensor:
    """Return images or rows as a tensor, if they are what they must be."""
    kind, shape = getattr(x, "dtype", type(x).__name__), tuple(getattr(x, "shape", ()))
    if isinstance(x, np.ndarray) and x.dtype.kind in "buif":
        with np.errstate(over="ignore"):
            x = torch.from_numpy(np.require(x, np.uint8 if x.dtype == np.uint8 else np.float32, ["C", "W"]))
    if isinstance(x, Tensor) and not x.is_complex() and 0 not in shape[1:]:
        if x.dim() == 4 and x.dtype == torch.uint8 and shape[1] in (1, 3):
            return x
        if x.dim() == 2 and x.dtype != torch.uint8:
            return _finite(x.float())
    raise ValueError(f"examples must be {WANTED}, not {kind} of {shape}")


def _finite(rows: Tensor) -> Tensor:
    odd = (~rows.isfinite()).any(1).nonzero().flatten().tolist()
    if odd:
        raise ValueError(
            f"{len(odd)} of {len(rows)} rows hold NaN, infinity or a number too large; the first is row {odd[0] + 1}"
        )
    return rows


def _names(labels: Labels, number: int) -> list[str]:
    """Return labels as text."""
    if isinstance(labels, Tensor | np.ndarray) and labels.ndim == 1:
        labels = labels.tolist()
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ValueError(f"labels must be a list with the class of each of the {number} examples")
    if len(labels) != number:
        raise ValueError(f"{number} examples need as many labels, not {len(labels)}")
    return [str(label) for label in labels]
