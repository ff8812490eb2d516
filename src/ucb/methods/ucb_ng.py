"""UCB-NG: UCB whose uncertainty follows the curvature of the data, by natural-gradient variational inference."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ucb.methods.base import TaskData, TaskInfo, chosen, method
from ucb.methods.bayesian import BayesianMethod, BayesianSettings
from ucb.optim import UCBNG
from ucb.optim.groups import Group


@dataclass(frozen=True)
class UCBNGSettings(BayesianSettings):
    """See :class:`ucb.optim.UCBNG`; the prior's spread is sigma's start."""

    lr: float = chosen(0.15, among=(0.1, 0.3, 0.5))
    clip: float = 0.0
    spread: float = 2.4
    """On 784-1200 this is a prior spread of 0.05. Far below it (0.1) the prior outweighs a task's curvature, and sigma
    hardly moves."""
    temperature: float = chosen(0.05, among=(0.005, 0.05, 0.5))
    beta: float = 1e-3
    power: float = chosen(1.0, among=(1.0, 2.0))
    pull: bool = False
    uniform: bool = False
    """The control: every weight of a tensor learns at the mean of the rates."""


@method
class UCBNGMethod(BayesianMethod):
    """The optimiser holds prior and temperature; the objective is the likelihood alone."""

    name = "ucb-ng"
    summary = "UCB with sigma learnt from curvature (natural gradients)"
    paper = "this project's variant; Khan et al. 2018 (VON), Shen et al. 2024 (IVON)"
    memory = "curvature, precision and rate of every shared weight"
    needs_boundaries = False
    stacks = True
    settings_type = UCBNGSettings
    settings: UCBNGSettings

    @property
    def can_stack(self) -> bool:
        """Whether several runs can take steps at once, as it is set and where it is."""
        return not self.settings.pull and self.is_local_in_kernels

    @property
    def free_settings(self) -> frozenset[str]:
        """How sigma becomes a rate matters at a task's end only."""
        return frozenset({"lr", "power", "uniform"})

    def make_optimizer(self, groups: list[Group]) -> UCBNG:
        """Return the natural-gradient optimiser."""
        s = self.settings
        rates = {"temperature": s.temperature, "beta": s.beta, "power": s.power}
        return UCBNG(groups, 1, s.lr, **rates, pull=s.pull, uniform=s.uniform)

    def begin_task(self, task: TaskInfo) -> None:
        """Tell the optimiser the task's size."""
        super().begin_task(task)
        assert isinstance(self.optimizer, UCBNG)
        self.optimizer.begin(task.size, 0.0 if task.boundaries else task.size / task.batches)

    def resume_task(self, task: TaskInfo) -> None:
        """Leave the prior to the optimiser."""
        super().resume_task(task)
        self.objective = dataclasses.replace(self.objective, temperature=0.0)

    def end_task(self, data: TaskData) -> None:
        """Let the task's curvature join what is known."""
        self.optimizer.consolidate()
