"""A method as somebody else would write it, in a module that is no part of the package."""

from dataclasses import dataclass

import torch

from ucb import checks
from ucb.methods import Settings
from ucb.methods.base import setting
from ucb.methods.ordinary import OrdinaryMethod


@dataclass(frozen=True)
class AnchorSettings(Settings):
    strength: float = setting(0.1, grid=(0.01, 0.1), check=checks.not_negative)


class Anchor(OrdinaryMethod):
    """Adds strength / 2 * ||theta - theta_last||^2 over the weights that tasks share."""

    name = "anchor"
    summary = "weights are pulled towards those of the last task"
    memory = "one value for every shared weight"
    settings: AnchorSettings
    remembered = ("last",)
    last: dict[str, torch.Tensor] = {}  # noqa: RUF012 (replaced, never changed)

    def adjust_gradients(self):
        for name, parameter in self.shared().items():
            if name in self.last:
                parameter.grad.add_(parameter.detach() - self.last[name], alpha=self.settings.strength)

    def end_task(self, data):
        self.last = {name: parameter.detach().clone() for name, parameter in self.shared().items()}
