"""VCL (Nguyen et al., ICLR 2018), without a coreset: the posterior of one task is the prior of the next.

VCL takes Adam's steps, VCL-GNG natural gradients within Adam (Chen, Diethe and Lawrence 2019), and VCL-Vadam reads the
spreads off Adam's second moments (Khan et al., ICML 2018).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ucb import checks
from ucb.bayes import ELBO, Estimator, Normal, PreviousPosterior, Prior, mean_forward
from ucb.bayes.passes import Batch
from ucb.methods.base import TaskData, TaskInfo, Weights, fraction, method, setting
from ucb.methods.bayesian import BayesianMethod, BayesianSettings
from ucb.optim import GNG, Adam, Vadam
from ucb.optim.base import Group, PerWeightOptimizer


@dataclass(frozen=True)
class VCLSettings(BayesianSettings):
    """The prior of what no task has learnt yet is N(0, prior_sigma^2), so the mixture's settings have no effect."""

    lr: float = setting(1e-3, grid=(3e-4, 1e-3, 3e-3))
    clip: float = 0.0
    init_std_ratio: float = setting(1.0, grid=(0.05, 1.0, 2.0))
    """Where inference starts. 0.05 is a variance of 1e-6 in a layer of 784 inputs, as Nguyen et al. have it; but sigma
    grows only slowly from there: after a few epochs the first task is so sure that the next can hardly learn."""
    samples: int = 1
    """One is enough where ``local`` draws noise for every row."""
    temperature: float = 1.0
    """VCL is defined at 1."""
    prior_sigma: float = setting(1.0, check=checks.positive)
    fit: float = setting(0.5, check=fraction)
    """The share of the first task's epochs that goes into the maximum-likelihood fit."""

    def objective(self, num_examples: int, generator: torch.Generator) -> ELBO:
        """Return the ELBO of a first task, whose KL is known in closed form."""
        return replace(super().objective(num_examples, generator), prior=Normal(self.prior_sigma))


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
    settings: VCLSettings
    remembered = ("prior", "is_fitting")
    is_fitting = False
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
        return (self.settings.fit, 1 - self.settings.fit) if self.current_task.index == 0 else (1.0,)

    def begin_phase(self, phase: int, data: TaskData) -> None:
        """Turn from the fit to inference, which is another objective: the fit's moments say nothing of it."""
        self.is_fitting = False
        self.optimizer.consolidate()

    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the ELBO's gradient, or that of the means' likelihood alone, which leaves the spreads as they are."""
        if not self.is_fitting:
            return super().add_gradients(x, y)
        nll = self.nll(mean_forward(self.net, x), y)
        nll.backward()
        return nll.detach()

    def end_task(self, data: TaskData) -> None:
        """Let what is known now be the next task's prior."""
        self.optimizer.consolidate()
        self.objective = replace(self.objective, prior=self._present_posterior())

    def _present_posterior(self) -> PreviousPosterior:
        """Return the shared weights' posterior; a head of its own is not learnt again, and a new one is unknown."""
        shared = self.net if self.net.shares_head else nn.ModuleDict({"trunk": self.net.trunk})
        return PreviousPosterior(shared, otherwise=Normal(self.settings.prior_sigma))

    @property
    def prior(self) -> Weights | None:
        """Means and spreads of the last task's posterior; None before a task has ended."""
        prior = self.objective.prior
        return dict(prior.state_dict()) if isinstance(prior, PreviousPosterior) else None

    @prior.setter
    def prior(self, known: Weights | None) -> None:
        prior: Prior = Normal(self.settings.prior_sigma)
        if known is not None:
            prior = self._present_posterior()
            prior.load_state_dict(known)
        self.objective = replace(self.objective, prior=prior)


@dataclass(frozen=True)
class VCLGNGSettings(VCLSettings):
    """VCL's, with more room at the start: natural steps are shorter where sigma is small."""

    init_std_ratio: float = setting(2.0, grid=(0.05, 1.0, 2.0))


@method
class VCLGNG(VCL):
    """The prior, the objective and the fit are VCL's; certain weights take small steps: see :mod:`ucb.optim.gng`."""

    name = "vcl-gng"
    summary = "VCL with Gaussian natural gradients in Adam"
    paper = "Chen et al. 2019"
    settings: VCLGNGSettings

    def make_optimizer(self, groups: list[Group]) -> GNG:
        """Return Adam on natural gradients."""
        return GNG(groups, self.settings.lr)


@dataclass(frozen=True)
class VCLVadamSettings(BayesianSettings):
    """See :class:`ucb.optim.Vadam`; the prior is N(0, sigma^2) with each layer's starting sigma."""

    lr: float = setting(3e-3, grid=(1e-3, 3e-3, 1e-2))
    clip: float = 0.0
    init_std_ratio: float = 2.0
    """On 784-1200 this is a prior spread of 0.04."""
    temperature: float = setting(0.1, grid=(0.1, 1.0), check=checks.positive)
    """The paper's is 1, where so narrow a prior pulls hard: a second task then learns slowly."""
    samples: int = 1
    estimator: Estimator = "weights"


@method
class VCLVadam(BayesianMethod):
    """The optimiser holds the prior and the last posterior; the objective is the likelihood alone.

    No fit goes before: the noise is there from the first step, as in the paper.
    """

    name = "vcl-vadam"
    summary = "VCL by weight perturbation in Adam"
    paper = "Khan et al., ICML 2018"
    memory = "mean and precision of every shared weight after the last task, however many tasks"
    settings: VCLVadamSettings
    optimizer: Vadam

    def make_optimizer(self, groups: list[Group]) -> Vadam:
        """Return Vadam."""
        return Vadam(groups, 1, self.settings.lr, temperature=self.settings.temperature)

    def begin_task(self, task: TaskInfo) -> None:
        """Tell the optimiser the task's size."""
        super().begin_task(task)
        self.optimizer.begin(task.num_examples)

    def resume_task(self, task: TaskInfo) -> None:
        """Leave the prior to the optimiser."""
        super().resume_task(task)
        self.objective = replace(self.objective, temperature=0.0)

    def end_task(self, data: TaskData) -> None:
        """Let what is known now be the next task's prior."""
        self.optimizer.consolidate()
