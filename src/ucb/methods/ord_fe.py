"""ORD-FE: feature extraction. The trunk learns the first task and then stays; later tasks learn a head on it."""

from __future__ import annotations

from ucb.methods.base import TaskInfo, method
from ucb.methods.ordinary import OrdinaryMethod


@method
class OrdinaryFeatureExtraction(OrdinaryMethod):
    """Nothing of an earlier task can be forgotten, and nothing new is learnt but heads."""

    name = "ord-fe"
    summary = "ordinary feature extraction: the trunk stays after the first task"

    def resume_task(self, task: TaskInfo) -> None:
        """Let the trunk learn in the first task only."""
        super().resume_task(task)
        self.net.trunk.requires_grad_(task.index == 0)
