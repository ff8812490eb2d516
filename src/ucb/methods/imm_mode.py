"""IMM-mode (Lee et al., NeurIPS 2017): tasks' weights are averaged, each weight by how sure each task is of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ucb.bayes import checks
from ucb.methods.base import TaskData, chosen, method
from ucb.methods.fisher import fisher
from ucb.methods.imm_mean import IMMMean, IMMSettings
from ucb.methods.per_example import Weights
from ucb.methods.quadratic import add_quadratic, copied
from ucb.nets import HeadedNet


@dataclass(frozen=True)
class IMMModeSettings(IMMSettings):
    """L2-transfer's strength, and how many examples say how sure a task is."""

    transfer: float = chosen(0.01, among=(1e-4, 1e-2, 1.0))
    fisher_examples: int = 1000
    """Training examples that the Fisher information is taken from; 0 takes all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("fisher_examples", self.fisher_examples, least=0)


@method
class IMMMode(IMMMean):
    """The mode of the product of Gaussians around each task's weights, with Fisher information as precision."""

    name = "imm-mode"
    summary = "incremental moment matching: the tasks' weights averaged by Fisher information (NeurIPS 2017)"
    memory = "3 values a shared weight (last trained, merged, summed Fisher information), however many tasks"
    settings_type = IMMModeSettings
    settings: IMMModeSettings

    def __init__(self, net: HeadedNet, settings: IMMModeSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.precision: Weights = {}

    def merge(self, data: TaskData) -> None:
        """Let ``merged`` be the precision-weighted mean; where no task has any precision, the plain one."""
        if not self.precision:
            self.precision = {name: torch.zeros_like(value) for name, value in self.merged.items()}
        add_quadratic(self.precision, self.merged, fisher(self, data, self.settings.fisher_examples), self.trained)

    def state_dict(self) -> dict[str, Any]:
        """Add the precisions."""
        return {**super().state_dict(), "precision": self.precision}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.precision = copied(state["precision"], self.weights)
