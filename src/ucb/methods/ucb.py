"""UCB (Ebrahimi et al., ICLR 2020): after a task, a weight's learning rate is its uncertainty times the base rate."""

from dataclasses import dataclass
from typing import Any

from ucb.methods.base import TaskData, TaskInfo, method, setting
from ucb.methods.bbb import BBBFineTuning, BBBSettings
from ucb.optim import UCB, Importance, RateScale
from ucb.optim.base import Group
from ucb.optim.ucb import On


@dataclass(frozen=True)
class UCBSettings(BBBSettings):
    """How sigma becomes a rate: see :class:`ucb.optim.UCB`."""

    importance: Importance = "certainty"
    gain: float = setting(1.0, grid=(0.5, 1.0, 2.0, 5.0))
    cap: float = 1.0
    """The largest factor on a rate; 0 lifts it."""
    on: On = "mu"
    cumulative: bool = False
    continuous: bool = False
    """Let the rates follow sigma at every step; without boundaries they always do."""

    def optimizer_options(self) -> dict[str, Any]:
        """Return the settings as :class:`ucb.optim.UCB` takes them."""
        return {
            "lr": self.lr,
            "momentum": self.momentum,
            "rho_lr": self.rho_lr or None,
            "scale": RateScale(self.importance, self.gain, self.cap or None),
            "on": self.on,
            "cumulative": self.cumulative,
            "continuous": self.continuous,
        }


@method
class UCBMethod(BBBFineTuning):
    """The paper's method with learning-rate regularisation."""

    name = "ucb"
    summary = "each weight's rate follows its uncertainty (ICLR 2020)"
    paper = "Ebrahimi et al., ICLR 2020"
    memory = "a rate for every shared weight"
    settings: UCBSettings
    optimizer: UCB

    def make_optimizer(self, groups: list[Group]) -> UCB:
        """Return UCB's optimiser."""
        return UCB(groups, **self.settings.optimizer_options())

    def resume_task(self, task: TaskInfo) -> None:
        """Where nobody marks the end of a task, let the rates follow sigma at every step."""
        super().resume_task(task)
        self.optimizer.continuous = self.settings.continuous or not task.boundaries

    def end_task(self, data: TaskData) -> None:
        """Let certain weights learn slowly from now on."""
        self.optimizer.consolidate()
