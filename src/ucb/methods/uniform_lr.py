"""uniform-lr: the control for UCB. Every weight of a layer gets the mean of the rates UCB would have given them."""

from dataclasses import dataclass

from ucb.methods.base import method
from ucb.methods.ucb import UCBMethod, UCBSettings
from ucb.optim import UniformLR
from ucb.optim.base import Group


@dataclass(frozen=True)
class UniformSettings(UCBSettings):
    """UCB's settings, and a constant that replaces its mean rate."""

    constant: float = 0.0
    """One factor for all weights; 0 matches UCB's mean in each layer."""


@method
class UniformLRMethod(UCBMethod):
    """UCB without uncertainty: where UCB does not beat this, its uncertainty did no work."""

    name = "uniform-lr"
    summary = "the control: UCB's mean rate for every weight of a layer"
    paper = "this project's control"
    settings: UniformSettings

    def make_optimizer(self, groups: list[Group]) -> UniformLR:
        """Return the control's optimiser."""
        return UniformLR(groups, constant=self.settings.constant or None, **self.settings.optimizer_options())
