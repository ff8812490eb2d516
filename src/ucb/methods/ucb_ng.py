"""UCB-NG: UCB whose uncertainty follows the curvature of the data, by natural-gradient variational inference."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ucb.bayes.curvature import class_roots
from ucb.kernels.side_stream import record_event, run_on_side_stream
from ucb.methods.base import TaskData, TaskInfo, method, setting
from ucb.methods.bayesian import BayesianMethod, BayesianSettings
from ucb.optim import UCBNG
from ucb.optim.base import Group

SHARE = 0.1
"""Rows whose curvature a step observes, beside those that it learns under all weight samples."""

CURVATURE = 1
"""What is done beside the likelihood's gradients, which have work beside them too."""

REFRESHING = 32
"""Backward passes that measure the curvature after each epoch: each weight's has a relative error of a quarter."""

NUMBERS = 2**24
"""How many numbers the held-out inputs at hand may fill."""


@dataclass(frozen=True)
class UCBNGSettings(BayesianSettings):
    """See :class:`ucb.optim.UCBNG`; the prior's spread is sigma's start."""

    lr: float = setting(0.15, grid=(0.1, 0.3, 0.5))
    clip: float = 0.0
    init_std_ratio: float = 2.4
    """On 784-1200 this is a prior spread of 0.05. Far below it (0.1) the prior outweighs a task's curvature, and sigma
    hardly moves."""
    temperature: float = setting(0.05, grid=(0.003, 0.03, 0.1, 0.3))
    beta: float = 0.02
    """Within an epoch the running curvature reaches back over some 50 steps; between two it is measured anew."""
    power: float = setting(1.0, grid=(1.0, 2.0))
    pull: bool = False
    uniform: bool = False
    """The control: every weight of a tensor learns at the mean of the rates."""


@method
class UCBNGMethod(BayesianMethod):
    """The optimiser holds prior and temperature; the objective is the likelihood alone.

    Curvature is observed in held-out inputs (their labels play no part): a net is soon too sure of what it has learnt.
    A stream without boundaries is observed as it comes, before it is learnt.
    """

    name = "ucb-ng"
    summary = "UCB with sigma learnt from curvature (natural gradients)"
    paper = "this project's variant; Khan et al. 2018 (VOGN), Martens et al. 2012 (curvature from signed gradients)"
    memory = "curvature, precision and rate of every shared weight"
    needs_boundaries = False
    settings: UCBNGSettings
    optimizer: UCBNG
    held_out: Tensor | None = None
    """Inputs of the task at hand."""

    def make_optimizer(self, groups: list[Group]) -> UCBNG:
        """Return the natural-gradient optimiser."""
        s = self.settings
        return UCBNG(
            groups, 1, s.lr, temperature=s.temperature, beta=s.beta, power=s.power, pull=s.pull, uniform=s.uniform
        )

    def begin_task(self, task: TaskInfo) -> None:
        """Tell the optimiser the task's size."""
        super().begin_task(task)
        self.held_out = None
        self.optimizer.begin(task.num_examples, 0.0 if task.boundaries else task.num_examples / task.batches)

    def resume_task(self, task: TaskInfo) -> None:
        """Leave the prior to the optimiser, and say how the likelihood is curved."""
        super().resume_task(task)
        self.objective = dataclasses.replace(self.objective, temperature=0.0, roots=self._roots)

    def _roots(self, logits: Tensor) -> Tensor:
        return class_roots(self.own_logits(logits))

    def inspect_data(self, data: TaskData) -> None:
        """Have held-out inputs at hand, in a random order that is always the same."""
        x = thin_out((x for x, _ in data.validation()), NUMBERS)
        self.held_out = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)]

    def add_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the gradient of the likelihood, and observe the curvature, on a GPU at the same time."""
        before, means = record_event(x), self.optimizer.learning_means()
        rows = max(1, round(SHARE * self.settings.samples * len(x)))
        with self.optimizer.skip_rho_gradients():
            nll = super().add_gradients(x, y)

        def observe_curvature() -> tuple[Tensor | None, ...]:
            seen = x[:rows] if self.held_out is None else self.held_out[self._next(rows, len(self.held_out))]
            return self.optimizer.see(self.objective, self.net, seen)

        found = run_on_side_stream(observe_curvature, x, since=before, which=CURVATURE)
        self.optimizer.add_curvature(means, found(), rows)
        return nll

    def _next(self, rows: int, of: int) -> Tensor:
        """Return the places of the next inputs to observe: a step goes on where the last one ended."""
        steps: Tensor = self.optimizer.state[self.optimizer.learning_means()[0]]["seen"].long()
        return (steps * rows + torch.arange(rows, device=steps.device)) % of

    def end_epoch(self, data: TaskData) -> None:
        """Let the next epoch's noise begin with the curvature at the present means.

        A running mean lags behind it: single batches change the curvature of a net that is nearly sure by half.
        """
        assert self.held_out is not None
        self.optimizer.measure(self.objective, self.net, self.held_out, REFRESHING)

    def end_task(self, data: TaskData) -> None:
        """Let the curvature at the task's last means join what is known."""
        if self.held_out is None:
            self.inspect_data(data)
        assert self.held_out is not None
        self.optimizer.measure(self.objective, self.net, self.held_out)
        self.optimizer.consolidate()
        self.held_out = None


def thin_out(batches: Iterable[Tensor], most: int) -> Tensor:
    """Return all rows of some batches or, if they would fill more than ``most`` numbers, every second, fourth, ..."""
    kept: list[Tensor] = []
    every, count = 1, 0
    for x in batches:
        kept.append(x[-count % every :: every])
        count += len(x)
        while sum(part.numel() for part in kept) > most and sum(map(len, kept)) > 1:
            kept, every = [torch.cat(kept)[::2]], 2 * every
    return torch.cat(kept)
