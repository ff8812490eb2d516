"""BBB-FE: Bayesian feature extraction. The trunk learns the first task and then stays; later tasks learn a head."""

from __future__ import annotations

from ucb.methods.base import TaskInfo, method
from ucb.methods.bbb_ft import BBBFineTuning


@method
class BBBFeatureExtraction(BBBFineTuning):
    """Bayes by Backprop whose trunk, means and spreads, stays after the first task."""

    name = "bbb-fe"
    summary = "Bayesian feature extraction: the trunk stays after the first task"
    needs_boundaries = True

    def resume_task(self, task: TaskInfo) -> None:
        """Let the trunk learn in the first task only."""
        super().resume_task(task)
        self.net.trunk.requires_grad_(task.index == 0)
