"""EWC (Kirkpatrick et al., PNAS 2017): each old task holds the weights that its answers depend on.

With it stands what it shares with MAS and SI: holding important weights near the values that old tasks left them at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ucb import checks
from ucb.methods.base import Settings, TaskData, Weights, at_least_0, method, setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.methods.per_example import fisher
from ucb.nets import HeadedNet


def copy_weights(weights: Mapping[str, Tensor]) -> Weights:
    """Return copies that no gradient reaches."""
    return {name: value.detach().clone() for name, value in weights.items()}


def add_quadratic(importance: Weights, centre: Weights, more: Weights, at: Mapping[str, Tensor]) -> None:
    """Add sum more (theta - at)^2 to sum importance (theta - centre)^2, in place; both may be empty yet.

    The sum of two quadratics is one again (and a constant): around the mean of their centres, weighted with their
    importances. So any number of tasks takes the memory of one.
    """
    for name, value in more.items():
        importance[name] = value + importance.get(name, 0.0)
        centre.setdefault(name, at[name].detach().clone()).lerp_(at[name].detach(), value / importance[name])


@dataclass(frozen=True)
class QuadraticSettings(Settings):
    """How strongly important weights are held."""

    strength: float = setting(1.0, check=checks.not_negative)


class QuadraticMethod(OrdinaryMethod):
    """Minimises the NLL plus s/2 sum importance (theta - centre)^2 over the shared parameters, s = stiffness strength.

    The step is implicit in the penalty: after the plain step each weight goes to the minimum of the penalty and its
    squared distance / (2 lr), a share p/(1+p) of the way to its centre, p = lr s importance. To first order in the rate
    this is the gradient step, with the same points of rest; but where p > 2 the gradient step overshoots further each
    time, and this one never overshoots. It is also the cheaper one: a single pass.
    """

    settings: QuadraticSettings
    remembered: ClassVar[tuple[str, ...]] = ("importance", "centre")
    stiffness: ClassVar[float] = 2.0
    """The penalty's second derivative for a strength and an importance of 1: it is 2 where there is no half in it."""

    def __init__(self, net: HeadedNet, settings: QuadraticSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.weights = self.shared()
        self.importance: Weights = {}
        """Empty until a task has ended."""
        self.centre: Weights = {}
        self.pull: Weights = {}
        """The share of its way to the centre that a weight goes each step: follows from importance and rate."""

    def adjust_weights(self) -> None:
        """Go back towards the centre."""
        for name, pull in self.pull.items():
            self.weights[name].lerp_(self.centre[name], pull)

    def set_rate(self, lr: float) -> None:
        """Set the learning rate."""
        super().set_rate(lr)
        self.refresh()

    def refresh(self) -> None:
        """Work out the pull: it follows the importances, as the last task left them, and the rate."""
        factor = self.optimizer.param_groups[0]["lr"] * (self.stiffness * self.settings.strength)
        self.pull = {name: (s := value * factor) / (1 + s) for name, value in self.importance.items()}


@dataclass(frozen=True)
class EWCSettings(QuadraticSettings):
    """How strongly old tasks hold their weights, and how many examples say which."""

    strength: float = setting(5000.0, grid=(500.0, 5000.0, 50000.0))
    """The paper's lambda: the penalty is lambda/2 sum_tasks sum F_t (theta - theta_t)^2."""
    fisher_examples: int = setting(1000, check=at_least_0)
    """Training examples that the Fisher information is taken from; 0 takes all."""


@method
class EWC(QuadraticMethod):
    """All old tasks' quadratics, kept as their sum."""

    name = "ewc"
    summary = "elastic weight consolidation: weights that Fisher information calls important are held (PNAS 2017)"
    paper = "Kirkpatrick et al., PNAS 2017"
    memory = "2 values a shared weight (summed Fisher information, weighted centre), however many tasks"
    settings: EWCSettings
    stiffness = 1.0

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Add the task's quadratic."""
        add_quadratic(self.importance, self.centre, fisher(self, data, self.settings.fisher_examples), self.weights)
