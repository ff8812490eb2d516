"""Normalisation for nets that learn task after task.

Batch statistics that all tasks share are themselves a way of forgetting: the running mean follows the last task. So
each task can have its own, or a layer normalises every example by itself.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Norm = Literal["batch", "task-batch", "group", "none"]
GROUPS = 8


class TaskBatchNorm2d(nn.Module):
    """Batch normalisation with one set of statistics, scale and shift for each task; the net says which is current."""

    def __init__(self, channels: int, tasks: int) -> None:
        super().__init__()
        self.of_task = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(tasks))
        self.current = 0

    def forward(self, x: Tensor) -> Tensor:
        """Normalise with the current task's statistics."""
        normalised: Tensor = self.of_task[self.current](x)
        return normalised


def is_of_one_task(name: str) -> bool:
    """Whether this is the name of normalisation that one task has for itself, where each has a head."""
    return ".of_task." in name


def norm_layer(kind: Norm, channels: int, tasks: int) -> nn.Module:
    """Return a normalisation of ``channels`` channels."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "task-batch":
        return TaskBatchNorm2d(channels, tasks)
    if kind == "group":
        groups = next(g for g in range(min(GROUPS, channels), 0, -1) if channels % g == 0)
        return nn.GroupNorm(groups, channels)
    return nn.Identity()
