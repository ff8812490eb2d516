"""What a way of learning is asked to do with a wave, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ucb.waves.calibration import Calibration
from ucb.waves.keeping import Keeper
from ucb.waves.sources import Examples, Skipped
from ucb.waves.watching import Watcher
from ucb.waves.wave import Effect

W = TypeVar("W", covariant=True)


@dataclass(frozen=True)
class Order:
    """A wave to learn."""

    examples: Examples
    classes: Tensor
    """The number of each example's class."""
    held_out: Tensor
    """A mask of those by which the result is measured."""
    calibration: Calibration
    """Learns from the held-out examples; it is nobody else's."""
    seed: int
    device: torch.device
    epochs: int | None
    watcher: Watcher
    keeper: Keeper | None


@dataclass(frozen=True)
class Outcome(Generic[W]):
    """What learning a wave gave."""

    way: W
    given: Tensor
    """The classes that were given to held-out examples that could be read and were asked, before they were learnt."""
    target: Tensor
    """Their true classes."""
    counts: Tensor
    """How many examples of each class were learnt from or held out."""
    effects: list[Effect]
    skipped: list[Skipped]
    """What was left out before the work was taken up again."""
