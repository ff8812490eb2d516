"""Labelled examples, in memory or read when they are needed, served in a given order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor


class Examples(ABC):
    """Some labelled examples. ``batches`` serves them in an order that the caller decides, so that a run can repeat it."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) on ``device`` for the examples whose indices ``order`` lists."""
