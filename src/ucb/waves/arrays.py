"""Examples that are in memory already: for Python programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ucb.bayes.checks import finite
from ucb.waves.sources import Skipped


class ArrayExamples:
    """``x`` as uint8 [n, C, H, W] or numbers [n, F], and the class of each as text, where it is known."""

    def __init__(self, x: Tensor, labels: Sequence[str] | None = None, columns: list[str] | None = None) -> None:
        if x.dim() == 4 and x.dtype == torch.uint8 and x.shape[1] in (1, 3):
            self.x = x
        elif x.dim() == 2 and x.dtype != torch.uint8:
            self.x = finite("the rows", x.float())
        else:
            raise ValueError(
                f"examples must be uint8 images [n, 1 or 3, height, width] or rows of numbers [n, columns], "
                f"not {x.dtype} of {tuple(x.shape)}"
            )
        if labels is not None and len(labels) != len(x):
            raise ValueError(f"{len(x)} examples need as many labels, not {len(labels)}")
        self.shape = tuple(x.shape[1:])
        self.labels = None if labels is None else [str(label) for label in labels]
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
