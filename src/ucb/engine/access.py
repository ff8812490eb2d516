"""What a method may see: the present task's data, in scenarios that it can serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ucb.data.streams.examples import Examples
from ucb.data.streams.tasks import Scenario, Task
from ucb.engine.evaluate import rows_at_once
from ucb.methods import Method


@dataclass(frozen=True)
class TaskBatches:
    """The data of the task at hand as methods see it: inputs ready for the net, labels as its outputs are numbered."""

    task: Task
    offset: int
    batch_size: int
    device: torch.device

    def train(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all training examples once."""
        return self._ready(self.task.train, self.batch_size)

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all held-out examples once."""
        return self._ready(self.task.validation, rows_at_once(self.task.validation, self.device))

    def _ready(self, examples: Examples, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in examples.in_order(rows, self.device):
            yield self.task.prepare(x), y + self.offset


def refuse_scenario(method: Method, scenario: Scenario) -> None:
    """Refuse a scenario that the method cannot serve."""
    if method.needs_task and not scenario.task_known:
        raise ValueError(
            f"{method.name} must be told the task at test time, and this scenario hides it: use several heads"
        )
    if method.needs_boundaries and not scenario.boundaries:
        raise ValueError(f"{method.name} must be told when a task ends, and tasks that fade into each other hide it")
