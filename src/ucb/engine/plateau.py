"""The paper's schedule: the rate drops to 0.3 of itself once the loss plateaus; training ends below a least rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ucb.bayes import checks


@dataclass(frozen=True)
class Schedule:
    """How long to train on a task, and at what rate.

    ``epochs`` are the most that a task may take. After ``patience`` of them without a better validation loss the rate
    is multiplied by ``factor``; below ``least_rate`` the task is over.

    >>> import ucb
    >>> ucb.Schedule(epochs=3).patience
    5
    """

    epochs: int = 10
    patience: int = 5
    """Epochs without a better validation loss before the rate drops."""
    factor: float = 0.3
    least_rate: float = 1e-4
    """Training on a task ends when its rate falls below this."""

    def __post_init__(self) -> None:
        checks.count("epochs", self.epochs)
        checks.count("patience", self.patience)
        checks.positive("least_rate", self.least_rate)
        if not 0 < self.factor < 1:
            raise ValueError(f"factor must be between 0 and 1, not {self.factor}")

    def refuse_rate(self, lr: float) -> None:
        """Refuse a first rate at which training would be over before it began."""
        if lr < self.least_rate:
            raise ValueError(
                f"lr is {lr:g}, and training ends when the rate falls below least_rate, {self.least_rate:g}: nothing "
                "would be learnt"
            )


@dataclass
class Plateau:
    """Where one task's training stands."""

    schedule: Schedule
    rate: float
    best: float = math.inf
    waited: int = 0
    epochs: int = 0

    def judge(self, loss: float) -> bool:
        """Take an epoch's validation loss; say whether it is the best so far."""
        self.epochs += 1
        if loss < self.best:
            self.best, self.waited = loss, 0
            return True
        self.waited += 1
        if self.waited >= self.schedule.patience:
            self.rate, self.waited = self.rate * self.schedule.factor, 0
        return False

    @property
    def is_over(self) -> bool:
        """Whether the task's training is at its end."""
        return self.epochs >= self.schedule.epochs or self.rate < self.schedule.least_rate
