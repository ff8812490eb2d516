"""What a way of learning is asked to do with a wave, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ucb.data.readers import ExampleReader as Examples
from ucb.data.readers import Skipped
from ucb.waves.calibration import Calibration
from ucb.waves.keeping import Keeper
from ucb.waves.prints import RepeatedWaveError, stamp
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
    known: Mapping[str, str]
    """The earlier waves' names by the hash of their content."""
    again: bool
    """Whether a wave that was learnt before is wanted once more."""

    def labels_of(self, positions: Tensor) -> list[str]:
        """Return the classes of some examples by name."""
        assert self.examples.labels is not None
        return [self.examples.labels[place] for place in positions.tolist()]

    def stamped(self, found: Tensor) -> str:
        """Return the hash of the wave's content, unless it was learnt before and nobody wants it again."""
        own = stamp(found)
        if own in self.known and not self.again:
            raise RepeatedWaveError(
                f"these data were learnt before, as {self.known[own]!r}, and count already: leave them out, "
                "or learn them once more with --again (from Python: again=True)"
            )
        return own


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
    stamp: str
    """The hash of the wave's content."""
    familiar: float
    """The share of the wave that seems to have been learnt before."""
