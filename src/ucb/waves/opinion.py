"""What a model makes of examples before it is calibrated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

ROWS = 512
NUMBERS = 1 << 23
"""Rows that are asked together, and numbers that may be at work for them: the fewer fit, the larger each row is."""


@dataclass(frozen=True)
class Opinion:
    """Logits under samples of the weights, and how unlike all that was learnt an example is.

    ``logits`` [samples, rows, classes] have a scale that calibration sets; ``novelty`` [rows] is 0 for an example as
    usual as those that were learnt, and the log of how many times less sure the weights make it where it is not.
    ``strength`` [rows] is the log of how much there is to see in it, relative to what was learnt; 0 where that is not
    known. An empty image has nothing new, and nothing at all.
    """

    logits: Tensor
    novelty: Tensor
    strength: Tensor


@dataclass(frozen=True)
class Asked:
    """Examples of known classes, and whom to ask about them: a batch of opinions at a time, as often as is needed."""

    opinion_of: Callable[[Tensor], Opinion]
    x: Tensor
    target: Tensor
    rows: int

    def __iter__(self) -> Iterator[tuple[Opinion, Tensor]]:
        """Yield opinions on a batch, and its classes."""
        for x, target in zip(self.x.split(self.rows), self.target.split(self.rows), strict=True):
            if len(target):
                yield self.opinion_of(x), target


def rows_together(numbers: int) -> int:
    """Return how many rows to ask together where each of them takes so many numbers."""
    return max(1, min(ROWS, NUMBERS // numbers))
