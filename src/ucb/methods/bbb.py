"""BBB: a Bayesian net by fine-tuning (BBB-FT), feature extraction (BBB-FE) or joint training (BBB-JT)."""

from dataclasses import dataclass

from ucb.methods.base import TaskInfo, method
from ucb.methods.bayesian import BayesianMethod, BayesianSettings
from ucb.methods.ord import Joint, JointSettings, TrunkStays
from ucb.optim import UCB
from ucb.optim.base import Group


@dataclass(frozen=True)
class BBBSettings(BayesianSettings):
    """Bayes by Backprop with plain gradient descent."""

    momentum: float = 0.0
    rho_lr: float = 0.0
    """Rho's own base rate; 0 takes mu's."""


@method
class BBBFineTuning(BayesianMethod):
    """UCB's optimiser whose rates never change, since no task's end is marked: nothing stops it forgetting."""

    name = "bbb-ft"
    summary = "Bayesian fine-tuning: nothing is done against forgetting"
    paper = "Blundell et al., ICML 2015 (Bayes by Backprop)"
    needs_boundaries = False
    settings: BBBSettings

    def make_optimizer(self, groups: list[Group]) -> UCB:
        """Return gradient descent on means and spreads."""
        return UCB(groups, self.settings.lr, momentum=self.settings.momentum, rho_lr=self.settings.rho_lr or None)


@method
class BBBFeatureExtraction(TrunkStays, BBBFineTuning):
    """Bayes by Backprop whose trunk, means and spreads, stays after the first task; later tasks learn a head."""

    name = "bbb-fe"
    summary = "Bayesian feature extraction: the trunk stays after the first task"


@dataclass(frozen=True)
class BBBJointSettings(BBBSettings, JointSettings):
    """Those of Bayes by Backprop and of joint training."""


@method
class BBBJoint(Joint, BBBFineTuning):
    """Bayes by Backprop on all tasks so far, from scratch at each."""

    name = "bbb-jt"
    summary = "Bayesian joint training on all tasks so far: a bound"
    settings: BBBJointSettings

    def is_head_learning(self, index: int, task: TaskInfo) -> bool:
        """Let the heads of all tasks so far learn."""
        return index <= task.head
