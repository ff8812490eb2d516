"""How a run trains and is judged, whatever the method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from ucb.bayes import checks
from ucb.engine.plateau import Schedule
from ucb.engine.precision import Precision


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
