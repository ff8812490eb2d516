"""The contract between the engine and a method.

The engine calls a method at a handful of moments: a task begins, a batch is learnt, a task ends, logits are asked for.
A method owns its update, and everything that it remembers is in its state: loaded into a fresh object it continues
exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes import checks
from ucb.nets import HeadedNet


@dataclass(frozen=True)
class TaskInfo:
    """What a learner is told when a task begins: which one, its training size, its head and its outputs there."""

    index: int
    size: int
    head: int
    outputs: range


class TaskHiddenError(RuntimeError):
    """The scenario hides the task at test time, and somebody asked for it."""


@dataclass(frozen=True)
class Asked:
    """What a learner is told of examples that it has to judge: the head to use, and the task only where it is known."""

    head: int
    task: int | None = None

    @property
    def index(self) -> int:
        """The task's index. In a scenario that hides it, the engine never put it here."""
        if self.task is None:
            raise TaskHiddenError("this scenario hides the task at test time: the learner may not know it")
        return self.task


@dataclass(frozen=True)
class Settings:
    """What every method can be set to."""

    lr: float = 0.05
    clip: float = 0.0
    """The largest norm of a step's gradient; 0 does not clip."""
    own_classes: bool = False
    """With one head: let the loss see the outputs of the task's own classes only."""

    def __post_init__(self) -> None:
        checks.positive("lr", self.lr)
        checks.not_negative("clip", self.clip)


class Method(ABC):
    """One way of learning tasks one after another."""

    name: ClassVar[str]
    summary: ClassVar[str]
    settings_type: ClassVar[type[Settings]] = Settings
    net: HeadedNet

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        self.settings = settings
        self.generator = generator
        self.task: TaskInfo | None = None

    def begin_task(self, task: TaskInfo) -> None:
        """Get ready for a task."""
        self.task = task
        self.net.current = task.head

    @abstractmethod
    def learn(self, x: Tensor, y: Tensor) -> Tensor:
        """Learn from a batch; return its mean NLL."""

    def end_task(self) -> None:  # noqa: B027 (most methods have something to do here, some have not)
        """Keep what the task has taught."""

    @abstractmethod
    def set_rate(self, lr: float) -> None:
        """Set the base learning rate, as the plateau rule asks."""

    @abstractmethod
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL of held-out examples, by which the plateau rule judges."""

    @abstractmethod
    def logits(self, x: Tensor, asked: Asked, samples: int, generator: torch.Generator) -> Tensor:
        """Return [samples, rows, outputs]; with 0 samples, one row of logits from the mean weights."""

    def nll(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL of logits; with ``own_classes`` the other tasks' outputs take no part."""
        assert self.task is not None
        own = self.task.outputs
        if self.settings.own_classes and len(own) < logits.shape[1]:
            return F.cross_entropy(logits[:, own.start : own.stop], y - own.start)
        return F.cross_entropy(logits, y)

    def clip_gradients(self) -> None:
        """Shorten the step's gradient if it is longer than ``clip``."""
        if self.settings.clip > 0:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.settings.clip)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the method remembers."""
        task = self.task
        return {
            "net": dict(self.net.state_dict()),
            "generator": self.generator.get_state(),
            "task": task and [task.index, task.size, task.head, task.outputs.start, task.outputs.stop],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        self.task = None
        if state["task"] is not None:
            index, size, head, start, stop = state["task"]
            self.resume_task(TaskInfo(index, size, head, range(start, stop)))
        self.net.load_state_dict(state["net"])
        self.generator.set_state(state["generator"])

    def resume_task(self, task: TaskInfo) -> None:
        """Bring a fresh object to where a task is under way, before its state is loaded."""
        self.task = task
        self.net.current = task.head


_methods: dict[str, type[Method]] = {}


def method(cls: type[Method]) -> type[Method]:
    """Register a method under its name."""
    _methods[cls.name] = cls
    return cls


def known_methods() -> dict[str, type[Method]]:
    """Return every method by name."""
    return dict(sorted(_methods.items()))
