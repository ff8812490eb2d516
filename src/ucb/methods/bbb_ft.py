"""BBB-FT: a Bayesian net that goes on training on every new task, with nothing to stop it forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ucb.methods.base import method
from ucb.methods.bayesian import BayesianMethod, BayesianSettings
from ucb.optim import UCB
from ucb.optim.groups import Group


@dataclass(frozen=True)
class BBBSettings(BayesianSettings):
    """Bayes by Backprop with plain gradient descent."""

    momentum: float = 0.0
    rho_lr: float = 0.0
    """Rho's own base rate; 0 takes mu's."""


@method
class BBBFineTuning(BayesianMethod):
    """UCB's optimiser whose rates never change, since no task's end is marked."""

    name = "bbb-ft"
    summary = "Bayesian fine-tuning: nothing is done against forgetting"
    paper = "Blundell et al., ICML 2015 (Bayes by Backprop)"
    needs_boundaries = False
    settings_type: ClassVar[type[BBBSettings]] = BBBSettings
    settings: BBBSettings

    def make_optimizer(self, groups: list[Group]) -> UCB:
        """Return gradient descent on means and spreads."""
        s = self.settings
        return UCB(groups, s.lr, momentum=s.momentum, rho_lr=s.rho_lr or None)
