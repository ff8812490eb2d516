"""EWC (Kirkpatrick et al., PNAS 2017): each old task holds the weights that its answers depend on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ucb.methods.base import TaskData, at_least_0, method, setting
from ucb.methods.per_example import fisher
from ucb.methods.quadratic import QuadraticMethod, QuadraticSettings, add_quadratic


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
    settings_type = EWCSettings
    settings: EWCSettings
    stiffness = 1.0

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Add the task's quadratic."""
        add_quadratic(self.importance, self.centre, fisher(self, data, self.settings.fisher_examples), self.weights)
