"""BBB-JT: a Bayesian net that learns all tasks together, from scratch at each step."""

from __future__ import annotations

from dataclasses import dataclass

from ucb.methods.base import TaskInfo, method
from ucb.methods.bbb_ft import BBBFineTuning, BBBSettings
from ucb.methods.joint import Joint, JointSettings


@dataclass(frozen=True)
class BBBJointSettings(BBBSettings, JointSettings):
    """Those of Bayes by Backprop and of joint training."""


@method
class BBBJoint(Joint, BBBFineTuning):
    """Bayes by Backprop on all tasks so far."""

    name = "bbb-jt"
    summary = "Bayesian joint training on all tasks so far: a bound"
    needs_boundaries = True
    settings_type = BBBJointSettings
    settings: BBBJointSettings

    def head_learns(self, index: int, task: TaskInfo) -> bool:
        """Let the heads of all tasks so far learn."""
        return index <= task.head
