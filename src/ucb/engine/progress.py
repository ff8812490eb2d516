"""Where a run stands, and what it has found so far: beside the method's state, all that a checkpoint must hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ucb.engine.sigma import Movement


@dataclass
class Progress:
    """Where a run stands, and what it has found so far."""

    task: int = 0
    phase: int = 0
    phase_epochs: list[int] = field(default_factory=list)
    """Epochs of the task's phases that are over."""
    epoch: int = 0
    batch: int = 0
    steps: int = 0
    steps_together: int = 0
    """Those of them that other runs took too."""
    losses: list[float] = field(default_factory=list)
    """NLL of the present epoch's batches so far: their sum, and how many."""
    rate: float = math.nan
    plateau_best: float = math.inf
    plateau_waited: int = 0
    seconds: float = 0.0
    seconds_before_epoch: float = 0.0
    """What they were when the present epoch began; checkpoints inside it count on."""
    task_seconds: list[float] = field(default_factory=list)
    rows: list[list[list[float]]] = field(default_factory=list)
    """After each task, the judgement of all tasks so far, as numbers."""
    before: list[float] = field(default_factory=list)
    at_start: list[float] = field(default_factory=list)
    epochs_used: list[int] = field(default_factory=list)
    before_end: list[float] = field(default_factory=list)
    """Accuracy on each task before the method ended it, where a method wants that to count."""
    bins: list[list[list[float]]] = field(default_factory=list)
    """After the last task, the bins of confidence of all tasks so far."""
    right: list[dict[str, Any]] = field(default_factory=list)
    """After the stream's last task, which test examples of each task were right, packed."""
    sigma: list[dict[str, Movement]] = field(default_factory=list)
    """After each task, how far sigma has moved in each weight tensor; empty without sigma."""
