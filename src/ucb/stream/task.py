"""Tasks, the stream they come in, and who may know which task it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ucb.stream.examples import Examples


@dataclass(frozen=True)
class Preparation:
    """How stored pixels become a net's input, on whatever device they are: (x / 255 - mean) / std, then a permutation.

    ``mean`` and ``std`` hold one number, or one for each channel. ``permutation`` reorders the flattened pixels.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    permutation: Tensor | None = None
    _constants: dict[torch.device, tuple[Tensor, Tensor, Tensor | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, x: Tensor) -> Tensor:
        """Return float inputs; floating-point data is taken as it is, but for the permutation."""
        mean, std, permutation = self._on(x.device)
        if not x.is_floating_point():
            shape = (-1, *[1] * (x.dim() - 2))
            x = (x.float() / 255 - mean.view(shape)) / std.view(shape)
        if permutation is not None:
            x = x.flatten(1)[:, permutation].view_as(x)
        return x

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return mean, std and permutation on ``device``; they go there once: a copy a batch would hold up a GPU."""
        if device not in self._constants:
            permutation = None if self.permutation is None else self.permutation.to(device)
            made = torch.tensor(self.mean, device=device), torch.tensor(self.std, device=device), permutation
            self._constants[device] = made
        return self._constants[device]


@dataclass(frozen=True)
class Task:
    """One task: its classes, and its data with labels 0 .. number of classes - 1."""

    name: str
    classes: tuple[str, ...]
    train: Examples
    validation: Examples
    test: Examples
    prepare: Preparation = Preparation()


@dataclass(frozen=True)
class Scenario:
    """What the learner has and what it is told.

    ``many`` heads: one for each task, and the task is known. ``one`` head: with outputs shared by all tasks, or one
    output for each class of each task. When ``task_known`` is False the learner is never given the task at test time.
    """

    heads: Literal["many", "one"] = "many"
    task_known: bool = True
    shared_outputs: bool = False

    def __post_init__(self) -> None:
        if self.heads == "many" and (not self.task_known or self.shared_outputs):
            raise ValueError("with several heads the task is known, and each has outputs of its own")


@dataclass(frozen=True)
class Stream:
    """Tasks in the order they come, under one scenario."""

    name: str
    tasks: tuple[Task, ...]
    scenario: Scenario = Scenario()

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("a stream needs at least one task")
        if self.scenario.shared_outputs and len({len(task.classes) for task in self.tasks}) > 1:
            raise ValueError("outputs can be shared only by tasks with the same number of classes")

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """The number of outputs of every head."""
        sizes = tuple(len(task.classes) for task in self.tasks)
        if self.scenario.heads == "many":
            return sizes
        return (max(sizes) if self.scenario.shared_outputs else sum(sizes),)

    def outputs_of(self, index: int) -> range:
        """Return which outputs of its head stand for the classes of task ``index``."""
        own = len(self.tasks[index].classes)
        apart = self.scenario.heads == "one" and not self.scenario.shared_outputs
        first = sum(len(task.classes) for task in self.tasks[:index]) if apart else 0
        return range(first, first + own)
