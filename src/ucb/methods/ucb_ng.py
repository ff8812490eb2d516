"""UCB-NG: UCB whose uncertainty follows the curvature of the data, by natural-gradient variational inference."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ucb.bayes.passes import Batch, count_rows, first_tensor, join_rows, list_rows, take_rows
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
    held_out: tuple[Batch, ...] | None = None
    """Inputs of the task at hand, those of one shape together."""

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
        self.objective = dataclasses.replace(self.objective, temperature=0.0, roots=self.roots)

    def inspect_data(self, data: TaskData) -> None:
        """Have held-out inputs at hand, in a random order that is always the same."""
        self.held_out = tuple(map(_shuffle, thin_out((x for x, _ in data.validation()), NUMBERS)))

    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the gradient of the likelihood, and observe the curvature, on a GPU at the same time."""
        first = first_tensor(x)
        before, means = record_event(first), self.optimizer.learning_means()
        rows = max(1, round(SHARE * self.settings.samples * len(first)))
        with self.optimizer.skip_rho_gradients():
            nll = super().add_gradients(x, y)

        def observe_curvature() -> tuple[Tensor | None, ...]:
            seen = take_rows(x, slice(rows)) if self.held_out is None else self._next(rows, self.held_out)
            return self.optimizer.see(self.objective, self.net, seen)

        found = run_on_side_stream(observe_curvature, first, since=before, which=CURVATURE)
        self.optimizer.add_curvature(means, found(), rows)
        return nll

    def _next(self, rows: int, held_out: Sequence[Batch]) -> Batch:
        """Return the next inputs to observe: a step goes on where the last one ended.

        Those of several shapes take turns; to know whose turn it is, a GPU has to be waited for.
        """
        steps: Tensor = self.optimizer.state[self.optimizer.learning_means()[0]]["seen"].long()
        x = held_out[0] if len(held_out) == 1 else held_out[int(steps) % len(held_out)]
        chosen: Batch = take_rows(x, (steps * rows + torch.arange(rows, device=steps.device)) % count_rows(x))
        return chosen

    def end_epoch(self, data: TaskData) -> None:
        """Let the next epoch's noise begin with the curvature at the present means.

        A running mean lags behind it: single batches change the curvature of a net that is nearly sure by half.
        """
        assert self.held_out is not None
        self.optimizer.measure(self.objective, self.net, *self.held_out, passes=REFRESHING)

    def end_task(self, data: TaskData) -> None:
        """Let the curvature at the task's last means join what is known."""
        if self.held_out is None:
            self.inspect_data(data)
        assert self.held_out is not None
        self.optimizer.measure(self.objective, self.net, *self.held_out)
        self.optimizer.consolidate()
        self.held_out = None


def thin_out(batches: Iterable[Batch], most: int) -> list[Batch]:
    """Return all rows of some batches or, if they would fill more than ``most`` numbers, every second, fourth, ...

    They are joined, those of one shape together.
    """
    kept: list[Batch] = []
    every, count = 1, 0
    for x in batches:
        kept.append(take_rows(x, slice(-count % every, None, every)))
        count += count_rows(x)
        while sum(map(_count_numbers, kept)) > most and sum(map(count_rows, kept)) > 1:
            kept, every = [take_rows(part, slice(None, None, 2)) for part in join_rows(kept)], 2 * every
    return join_rows(kept)


def _count_numbers(x: Batch) -> int:
    return sum(part.numel() for part in list_rows(x))


def _shuffle(x: Batch) -> Batch:
    order = torch.randperm(count_rows(x), generator=torch.Generator().manual_seed(0)).to(first_tensor(x).device)
    shuffled: Batch = take_rows(x, order)
    return shuffled
