"""IMM-mean (Lee et al., NeurIPS 2017): every task's trained weights are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ucb.bayes import checks
from ucb.methods.base import Settings, TaskData, TaskInfo, chosen, method
from ucb.methods.ordinary import OrdinaryMethod
from ucb.methods.per_example import Weights
from ucb.methods.quadratic import copied
from ucb.nets import HeadedNet


@dataclass(frozen=True)
class IMMSettings(Settings):
    """How near each task stays to the one before, so that the way between them is smooth."""

    transfer: float = chosen(1e-4, among=(1e-4, 1e-2, 1.0))
    """L2-transfer: the penalty is transfer/2 ||theta - theta_last||^2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative("transfer", self.transfer)


@method
class IMMMean(OrdinaryMethod):
    """Training goes on from the last trained weights; answers come from the merged ones.

    Only what tasks share is merged: a head belongs to one task, and others have nothing to say about it.
    """

    name = "imm-mean"
    summary = "incremental moment matching: the mean of all tasks' weights (NeurIPS 2017)"
    paper = "Lee et al., NeurIPS 2017"
    memory = "2 values a shared weight (last trained, merged), however many tasks"
    settings_type = IMMSettings
    settings: IMMSettings

    def __init__(self, net: HeadedNet, settings: IMMSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.weights = self.shared()
        self.learnt = 0
        self.trained: Weights = {}
        """The last task's weights as it left them; empty until one has ended."""
        self.merged: Weights = {}

    def begin_task(self, task: TaskInfo) -> None:
        """Put the last trained weights back."""
        super().begin_task(task)
        self._put(self.trained)

    def learn(self, x: Tensor, y: Tensor) -> Tensor:
        """One step, and L2-transfer: the penalty's implicit step, as in :class:`QuadraticMethod`."""
        nll = super().learn(x, y)
        pull = self.optimizer.param_groups[0]["lr"] * self.settings.transfer
        with torch.no_grad():
            for name, last in self.trained.items():
                self.weights[name].lerp_(last, pull / (1 + pull))
        return nll

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Merge the task's weights with all before them, and answer with the result."""
        self.trained = copied(self.weights, self.weights)
        if not self.merged:
            self.merged = copied(self.weights, self.weights)
        self.learnt += 1
        self.merge(data)
        self._put(self.merged)

    def merge(self, data: TaskData) -> None:
        """Let ``merged`` be the mean of all trained weights, the last among them."""
        for name, merged in self.merged.items():
            merged.lerp_(self.trained[name], 1 / self.learnt)

    @torch.no_grad()
    def _put(self, weights: Weights) -> None:
        for name, value in weights.items():
            self.weights[name].copy_(value)

    def state_dict(self) -> dict[str, Any]:
        """Add the two sets of weights that the net does not hold."""
        return {**super().state_dict(), "learnt": self.learnt, "trained": self.trained, "merged": self.merged}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.learnt = state["learnt"]
        self.trained = copied(state["trained"], self.weights)
        self.merged = copied(state["merged"], self.weights)
