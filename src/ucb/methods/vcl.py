"""VCL (Nguyen et al., ICLR 2018), without a coreset: the posterior of one task is the prior of the next."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ucb.bayes import ELBO, Normal, PreviousPosterior, Prior, checks, mean_forward
from ucb.methods.base import TaskData, TaskInfo, chosen, method
from ucb.methods.bayesian import BayesianMethod, BayesianSettings
from ucb.nets import HeadedNet
from ucb.optim.adam import Adam
from ucb.optim.base import PerWeightOptimizer
from ucb.optim.groups import Group


@dataclass(frozen=True)
class VCLSettings(BayesianSettings):
    """The prior of what no task has learnt yet is N(0, prior_sigma^2), so the mixture's settings have no effect."""

    lr: float = chosen(1e-3, among=(3e-4, 1e-3, 3e-3))
    clip: float = 0.0
    spread: float = chosen(1.0, among=(0.05, 1.0, 2.0))
    """Where inference starts. 0.05 is a variance of 1e-6 in a layer of 784 inputs, as Nguyen et al. have it; but sigma
    grows only slowly from there: after a few epochs the first task is so sure that the next can hardly learn."""
    samples: int = 1
    """One is enough where ``local`` draws noise for every row."""
    temperature: float = 1.0
    """VCL is defined at 1."""
    prior_sigma: float = 1.0
    fit: float = 0.5
    """The share of the first task's epochs that goes into the maximum-likelihood fit."""

    def __post_init__(self) -> None:
        checks.positive("prior_sigma", self.prior_sigma)
        if not 0 < self.fit < 1:
            raise ValueError(f"fit must be between 0 and 1, not {self.fit}")
        super().__post_init__()  # makes an objective, with this prior

    def objective(self, size: int, generator: torch.Generator) -> ELBO:
        """Return the ELBO of a first task, whose KL is known in closed form."""
        return dataclasses.replace(super().objective(size, generator), prior=Normal(self.prior_sigma))


@method
class VCL(BayesianMethod):
    """Mean-field variational inference, task after task, by Adam.

    The first task begins with a maximum-likelihood fit of the means, without noise or KL; the spreads stay small and
    inference takes over from there.
    """

    name = "vcl"
    summary = "variational continual learning: the last posterior is the next prior"
    paper = "Nguyen et al., ICLR 2018"
    memory = "mean and spread of every shared weight after the last task, however many tasks"
    settings_type: ClassVar[type[VCLSettings]] = VCLSettings
    settings: VCLSettings

    def __init__(self, net: HeadedNet, settings: VCLSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.is_fitting = False
        """Whether the maximum-likelihood fit is under way."""

    def make_optimizer(self, groups: list[Group]) -> PerWeightOptimizer:
        """Return Adam."""
        return Adam(groups, self.settings.lr)

    def begin_task(self, task: TaskInfo) -> None:
        """Let the first task begin with a fit."""
        super().begin_task(task)
        self.is_fitting = task.index == 0

    def phases(self) -> tuple[float, ...]:
        """Return two shares for the first task, fit and inference, and one for others."""
        assert self.task is not None
        return (self.settings.fit, 1 - self.settings.fit) if self.task.index == 0 else (1.0,)

    def begin_phase(self, phase: int, data: TaskData) -> None:
        """Turn from the fit to inference, which is another objective: the fit's moments say nothing of it."""
        self.is_fitting = False
        self.optimizer.consolidate()

    def add_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the ELBO's gradient, or that of the means' likelihood alone, which leaves the spreads as they are."""
        if not self.is_fitting:
            return super().add_gradients(x, y)
        nll = self.nll(mean_forward(self.net, x), y)
        nll.backward()
        return nll.detach()

    def end_task(self, data: TaskData) -> None:
        """Let what is known now be the next task's prior."""
        self.optimizer.consolidate()
        self._set_prior(self._present_posterior())

    def _present_posterior(self) -> PreviousPosterior:
        """Return the shared weights' posterior; a head of its own is not learnt again, and a new one is unknown."""
        shared = self.net if len(self.net.heads) == 1 else nn.ModuleDict({"trunk": self.net.trunk})
        return PreviousPosterior(shared, otherwise=Normal(self.settings.prior_sigma))

    def _set_prior(self, prior: Prior) -> None:
        self.objective = dataclasses.replace(self.objective, prior=prior)

    def state_dict(self) -> dict[str, Any]:
        """Add the prior, where it is an earlier posterior, and whether the fit is under way."""
        prior = self.objective.prior
        known = dict(prior.state_dict()) if isinstance(prior, PreviousPosterior) else None
        return {**super().state_dict(), "prior": known, "is_fitting": self.is_fitting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.is_fitting = state["is_fitting"]
        prior: Prior = Normal(self.settings.prior_sigma)
        if state["prior"] is not None:
            prior = self._present_posterior()
            prior.load_state_dict(state["prior"])
        self._set_prior(prior)
