"""How a run trains and is evaluated, whatever the method: schedule, plateau rule, precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch

from ucb import checks

Precision = Literal["float32", "tf32", "bf16"]


@contextmanager
def set_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Multiply matrices and convolve in this precision, for as long as the block lasts; a CPU knows only float32.

    ``tf32`` keeps 10 bits of each factor's mantissa, ``bf16`` keeps 7 and halves the memory of activations. Weights,
    gradients, noise and sums stay in float32.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    try:
        # Casts are not kept: weights change from step to step inside this one block.
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


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

    def observe(self, loss: float) -> bool:
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


@dataclass(frozen=True)
class Training:
    """How a run trains and is judged, whatever the method.

    ``schedule`` says how long and at what rate, ``batch_size`` how many examples a step takes, and ``eval_samples`` how
    many weight samples answers are averaged over.

    >>> import ucb
    >>> ucb.Training(ucb.Schedule(epochs=3), batch_size=128).batch_size
    128
    """

    schedule: Schedule = field(default_factory=Schedule)
    batch_size: int = 64
    eval_samples: int = 10
    checkpoint_every: int = 1000
    """Steps between checkpoints inside a task."""
    graphs: bool = True
    """On a GPU: capture the training step as a CUDA graph, where the method's step allows it."""
    precision: Precision = "tf32"
    """On a GPU: the precision of the factors of matrix products and convolutions."""

    def __post_init__(self) -> None:
        checks.count("batch_size", self.batch_size)
        checks.count("eval_samples", self.eval_samples)
        checks.count("checkpoint_every", self.checkpoint_every)
        checks.one_of("precision", self.precision, get_args(Precision))
