"""VCL-Vadam: VCL by Vadam (Khan et al., ICML 2018), whose spreads follow from Adam's second moments."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ucb.bayes import Estimator, checks
from ucb.methods.base import TaskData, TaskInfo, chosen, method
from ucb.methods.bayesian import BayesianMethod, BayesianSettings
from ucb.optim.groups import Group
from ucb.optim.vadam import Vadam


@dataclass(frozen=True)
class VCLVadamSettings(BayesianSettings):
    """See :class:`ucb.optim.vadam.Vadam`; the prior is N(0, sigma^2) with each layer's starting sigma."""

    lr: float = chosen(3e-3, among=(1e-3, 3e-3, 1e-2))
    clip: float = 0.0
    spread: float = 2.0
    """On 784-1200 this is a prior spread of 0.04."""
    temperature: float = chosen(0.1, among=(0.1, 1.0))
    """The paper's is 1, where so narrow a prior pulls hard: a second task then learns slowly."""
    samples: int = 1
    estimator: Estimator = "weights"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("temperature", self.temperature)


@method
class VCLVadam(BayesianMethod):
    """The optimiser holds the prior and the last posterior; the objective is the likelihood alone.

    No fit goes before: the noise is there from the first step, as in the paper.
    """

    name = "vcl-vadam"
    summary = "VCL by weight perturbation in Adam"
    paper = "Khan et al., ICML 2018"
    memory = "mean and precision of every shared weight after the last task, however many tasks"
    settings_type = VCLVadamSettings
    settings: VCLVadamSettings
    optimizer: Vadam

    def make_optimizer(self, groups: list[Group]) -> Vadam:
        """Return Vadam."""
        return Vadam(groups, 1, self.settings.lr, temperature=self.settings.temperature)

    def begin_task(self, task: TaskInfo) -> None:
        """Tell the optimiser the task's size."""
        super().begin_task(task)
        self.optimizer.begin(task.size)

    def resume_task(self, task: TaskInfo) -> None:
        """Leave the prior to the optimiser."""
        super().resume_task(task)
        self.objective = dataclasses.replace(self.objective, temperature=0.0)

    def end_task(self, data: TaskData) -> None:
        """Let what is known now be the next task's prior."""
        self.optimizer.consolidate()
