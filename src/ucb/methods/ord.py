"""ORD: an ordinary net by fine-tuning (ORD-FT), feature extraction (ORD-FE) or joint training (ORD-JT)."""

from __future__ import annotations

from ucb.methods.base import TaskInfo, method
from ucb.methods.joint import Joint, JointSettings
from ucb.methods.ordinary import OrdinaryMethod


@method
class OrdinaryFineTuning(OrdinaryMethod):
    """Plain stochastic gradient descent, task after task, with nothing to stop it forgetting."""

    name = "ord-ft"
    summary = "ordinary fine-tuning: nothing is done against forgetting"
    needs_boundaries = False


@method
class OrdinaryFeatureExtraction(OrdinaryMethod):
    """The trunk learns the first task and then stays: nothing can be forgotten, and nothing new is learnt but heads."""

    name = "ord-fe"
    summary = "ordinary feature extraction: the trunk stays after the first task"

    def resume_task(self, task: TaskInfo) -> None:
        """Let the trunk learn in the first task only."""
        super().resume_task(task)
        self.net.trunk.requires_grad_(task.index == 0)


@method
class OrdinaryJoint(Joint, OrdinaryMethod):
    """Plain stochastic gradient descent on all tasks so far, from scratch at each."""

    name = "ord-jt"
    summary = "ordinary joint training on all tasks so far: a bound"
    settings_type = JointSettings
    settings: JointSettings
