"""MAS (Aljundi et al., ECCV 2018): weights matter as far as the net's outputs react to them, whatever the labels."""

from dataclasses import dataclass

import torch

from ucb.methods.base import TaskData, at_least_0, method, setting
from ucb.methods.ewc import QuadraticMethod, QuadraticSettings, copy_weights
from ucb.methods.per_example import mean_powers, some_inputs


@dataclass(frozen=True)
class MASSettings(QuadraticSettings):
    """How strongly sensitive weights are held, and how many examples say which."""

    strength: float = setting(1.0, grid=(0.1, 1.0, 10.0))
    """The paper's lambda: the penalty is lambda sum Omega (theta - theta*)^2."""
    importance_examples: int = setting(1000, check=at_least_0)
    """Training examples that the importance is taken from; 0 takes all."""


@method
class MAS(QuadraticMethod):
    """Omega = mean over examples of |d ||f(x)||^2 / d theta|, summed over tasks, around the last task's weights."""

    name = "mas"
    summary = "memory aware synapses: weights that the outputs are sensitive to are held (ECCV 2018)"
    paper = "Aljundi et al., ECCV 2018"
    memory = "2 values a shared weight (summed importance, last weights), however many tasks"
    settings: MASSettings

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Add the task's importance; hold the weights where they are now."""
        x = some_inputs(data, self.settings.importance_examples, self.generator)
        more = mean_powers(self.net, self.weights, x, lambda f: self.own_logits(f).square().sum(1)[:, None], power=1)
        self.importance = {name: value + self.importance.get(name, 0.0) for name, value in more.items()}
        self.centre = copy_weights(self.weights)
