"""What the methods share that hold important weights near the values that old tasks left them at."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ucb.methods.base import Settings, TaskInfo
from ucb.methods.ordinary import OrdinaryMethod
from ucb.methods.per_example import Weights
from ucb.nets import HeadedNet


def copied(weights: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Weights:
    """Return copies of weights, where and in the type that the parameters of the same names are."""
    return {name: value.detach().to(like[name].device, like[name].dtype, copy=True) for name, value in weights.items()}


def add_quadratic(importance: Weights, centre: Weights, more: Weights, at: Mapping[str, Tensor]) -> None:
    """Add sum more (theta - at)^2 to sum importance (theta - centre)^2, in place.

    The sum of two quadratics is one again (and a constant): around the mean of their centres, weighted with their
    importances. So any number of tasks takes the memory of one.
    """
    for name, value in more.items():
        importance[name] += value
        centre[name].lerp_(at[name].detach(), value / importance[name])


class QuadraticMethod(OrdinaryMethod):
    """Minimises the NLL plus ``stiffness``/2 sum importance (theta - centre)^2 over the shared parameters.

    The step is implicit in the penalty: after the plain step each weight goes to the minimum of the penalty and its
    squared distance / (2 lr), a share s/(1+s) of the way to its centre, s = lr stiffness importance. To first order in
    the rate this is the gradient step, with the same points of rest; but where s > 2 the gradient step overshoots
    further each time, and this one never overshoots. It is also the cheaper one: a single pass.
    """

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.weights = self.shared()
        self.importance: Weights = {}
        """Empty until a task has ended."""
        self.centre: Weights = {}
        self.pull: Weights = {}
        """The share of its way to the centre that a weight goes each step: follows from importance and rate."""

    @property
    @abstractmethod
    def stiffness(self) -> float:
        """The penalty's second derivative for an importance of 1."""

    def begin_task(self, task: TaskInfo) -> None:
        """Let what the last task left act from now on."""
        super().begin_task(task)
        self._set_pull()

    def learn(self, x: Tensor, y: Tensor) -> Tensor:
        """One step on the batch, and the way back towards the centre."""
        nll = super().learn(x, y)
        with torch.no_grad():
            for name, pull in self.pull.items():
                self.weights[name].lerp_(self.centre[name], pull)
        return nll

    def set_rate(self, lr: float) -> None:
        """Set the learning rate."""
        super().set_rate(lr)
        self._set_pull()

    def _set_pull(self) -> None:
        factor = self.optimizer.param_groups[0]["lr"] * self.stiffness
        self.pull = {name: (s := value * factor) / (1 + s) for name, value in self.importance.items()}

    def state_dict(self) -> dict[str, Any]:
        """Add the penalty."""
        return {**super().state_dict(), "importance": self.importance, "centre": self.centre}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.importance = copied(state["importance"], self.weights)
        self.centre = copied(state["centre"], self.weights)
        self._set_pull()
