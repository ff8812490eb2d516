"""One epoch of training steps after the other, on the batches of one task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ucb.data.streams.tasks import Task
from ucb.methods import Method


class Steps(ABC):
    """Learns a task's batches in a given order, one at each call."""

    obstacle: str | None = None
    """Why the steps cannot be captured, once that is known."""

    @property
    def is_time_to_look(self) -> bool:
        """Whether it is time to look at the losses: that holds up a GPU, so there it is done for many at a time."""
        return True

    @abstractmethod
    def begin(self, order: Tensor, batch: int) -> None:
        """Get ready for an epoch in this order, of which ``batch`` batches have been learnt before."""

    @abstractmethod
    def learn(self) -> None:
        """Learn the next batch."""

    @abstractmethod
    def new_losses(self) -> list[float]:
        """Return the losses of the batches since this was last asked. It waits until they are learnt."""


LOOK_EVERY = 50
"""Batches after which the loss is looked at on a GPU."""


class EagerSteps(Steps):
    """Runs a method's step as it is written."""

    def __init__(self, method: Method, task: Task, offset: int, batch_size: int, device: torch.device) -> None:
        self.method, self.task, self.offset = method, task, offset
        self.batch_size, self.device = batch_size, device
        self.batches: Iterator[tuple[Tensor, Tensor]] = iter(())
        self.unseen: list[Tensor] = []

    def begin(self, order: Tensor, batch: int) -> None:
        """Let the examples of this order come one batch after the other."""
        self.batches = self.task.train.batches(order[batch * self.batch_size :], self.batch_size, self.device)

    def learn(self) -> None:
        """Learn the next batch."""
        x, y = next(self.batches)
        self.unseen.append(self.method.learn(self.task.prepare(x), y + self.offset))

    @property
    def is_time_to_look(self) -> bool:
        """Whether enough batches are unseen."""
        return self.device.type != "cuda" or len(self.unseen) >= LOOK_EVERY

    def new_losses(self) -> list[float]:
        """Return the losses since this was last asked."""
        values: list[float] = torch.stack(self.unseen).tolist() if self.unseen else []
        self.unseen = []
        return values
