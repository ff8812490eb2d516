"""IMM, incremental moment matching (Lee et al., NeurIPS 2017): every task's trained weights are averaged.

IMM-mean takes the plain mean; IMM-mode weighs each task's weights by how sure it is of them.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from ucb import checks
from ucb.methods.base import Settings, TaskData, TaskInfo, Weights, at_least_0, method, setting
from ucb.methods.ewc import add_quadratic, copy_weights
from ucb.methods.ordinary import OrdinaryMethod
from ucb.methods.per_example import fisher
from ucb.nets import HeadedNet


@dataclass(frozen=True)
class IMMSettings(Settings):
    """How near each task stays to the one before, so that the way between them is smooth."""

    transfer: float = setting(1e-4, grid=(1e-4, 1e-2, 1.0), check=checks.not_negative)
    """L2-transfer: the penalty is transfer/2 ||theta - theta_last||^2."""


@method
class IMMMean(OrdinaryMethod):
    """Training goes on from the last trained weights; answers come from the merged ones.

    Only what tasks share is merged: a head belongs to one task, and others have nothing to say about it.
    """

    name = "imm-mean"
    summary = "incremental moment matching: the mean of all tasks' weights (NeurIPS 2017)"
    paper = "Lee et al., NeurIPS 2017"
    memory = "2 values a shared weight (last trained, merged), however many tasks"
    settings: IMMSettings
    remembered: ClassVar[tuple[str, ...]] = ("learnt", "trained", "merged")

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

    def adjust_weights(self) -> None:
        """L2-transfer: the penalty's implicit step, as in :class:`ucb.methods.ewc.QuadraticMethod`."""
        pull = self.optimizer.param_groups[0]["lr"] * self.settings.transfer
        for name, last in self.trained.items():
            self.weights[name].lerp_(last, pull / (1 + pull))

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Merge the task's weights with all before them, and answer with the result."""
        self.trained = copy_weights(self.weights)
        self.merged = self.merged or copy_weights(self.weights)
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


@dataclass(frozen=True)
class IMMModeSettings(IMMSettings):
    """L2-transfer's strength, and how many examples say how sure a task is."""

    transfer: float = setting(0.01, grid=(1e-4, 1e-2, 1.0))
    fisher_examples: int = setting(1000, check=at_least_0)
    """Training examples that the Fisher information is taken from; 0 takes all."""


@method
class IMMMode(IMMMean):
    """The mode of the product of Gaussians around each task's weights, with Fisher information as precision."""

    name = "imm-mode"
    summary = "incremental moment matching: the tasks' weights averaged by Fisher information (NeurIPS 2017)"
    memory = "3 values a shared weight (last trained, merged, summed Fisher information), however many tasks"
    settings: IMMModeSettings
    remembered = ("precision",)

    def __init__(self, net: HeadedNet, settings: IMMModeSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.precision: Weights = {}

    def merge(self, data: TaskData) -> None:
        """Let ``merged`` be the precision-weighted mean; where no task has any precision, the plain one."""
        add_quadratic(self.precision, self.merged, fisher(self, data, self.settings.fisher_examples), self.trained)
