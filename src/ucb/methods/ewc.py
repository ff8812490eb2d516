"""EWC (Kirkpatrick et al., PNAS 2017): each old task holds the weights that its answers depend on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ucb.bayes import checks
from ucb.methods.base import Settings, TaskData, chosen, method
from ucb.methods.fisher import fisher
from ucb.methods.quadratic import QuadraticMethod, add_quadratic, copied


@dataclass(frozen=True)
class EWCSettings(Settings):
    """How strongly old tasks hold their weights, and how many examples say which."""

    strength: float = chosen(5000.0, among=(500.0, 5000.0, 50000.0))
    """The paper's lambda: the penalty is lambda/2 sum_tasks sum F_t (theta - theta_t)^2."""
    fisher_examples: int = 1000
    """Training examples that the Fisher information is taken from; 0 takes all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative("strength", self.strength)
        checks.count("fisher_examples", self.fisher_examples, least=0)


@method
class EWC(QuadraticMethod):
    """All old tasks' quadratics, kept as their sum."""

    name = "ewc"
    summary = "elastic weight consolidation: weights that Fisher information calls important are held (PNAS 2017)"
    paper = "Kirkpatrick et al., PNAS 2017"
    memory = "2 values a shared weight (summed Fisher information, weighted centre), however many tasks"
    settings_type = EWCSettings
    settings: EWCSettings

    @property
    def stiffness(self) -> float:
        """The penalty is lambda/2 F (theta - centre)^2."""
        return self.settings.strength

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Add the task's quadratic."""
        if not self.importance:
            self.importance = {name: torch.zeros_like(p) for name, p in self.weights.items()}
            self.centre = copied(self.weights, self.weights)
        add_quadratic(self.importance, self.centre, fisher(self, data, self.settings.fisher_examples), self.weights)
