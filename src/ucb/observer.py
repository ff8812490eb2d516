"""What work that takes long tells whoever watches it: the one protocol, for runs, for `learn` and for `predict`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ucb.engine.result import TaskMetrics


@dataclass(frozen=True)
class Epoch:
    """The end of an epoch of a task."""

    task: int
    epoch: int
    loss: float
    validation_loss: float
    rate: float
    seconds: float


class Observer:
    """Watches some work. Every moment is there to be overridden; by default nothing is said."""

    def task_began(self, task: int, name: str) -> None:
        """Hear that a task begins, or goes on after a resume."""

    def batch_learnt(self, task: int, epoch: int, batch: int, batches: int) -> None:
        """Hear that one more batch was learnt."""

    def epoch_ended(self, epoch: Epoch) -> None:
        """Hear that an epoch is over."""

    def task_ended(self, task: int, row: list[TaskMetrics]) -> None:
        """Hear that a task is over, and how well all tasks so far are known; the next may have begun by then."""

    def moved(self, done: int, total: int) -> None:
        """Hear how many of the examples have been gone through."""

    def noted(self, sentence: str) -> None:
        """Hear a sentence that the user should read."""
