"""UCB-P-NG: UCB-P whose sigma follows the curvature of the data. What the data made certain belongs to its task."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ucb.bayes.posterior import Gaussian
from ucb.methods.base import TaskData, TaskInfo, Weights, fraction, method, one_of, setting
from ucb.methods.packnet import Masks
from ucb.methods.ucb_ng import UCBNGMethod, UCBNGSettings
from ucb.methods.ucb_p import OwnedGaussians
from ucb.optim import UCBNG, importance, least_important
from ucb.optim.base import Group

Ranking = Literal["snr", "certainty", "magnitude", "fisher", "random"]


@dataclass(frozen=True)
class UCBPNGSettings(UCBNGSettings):
    """How weights are ranked, how many a task gives back, and how long it trains those that it keeps."""

    lr: float = setting(0.05, grid=(0.05, 0.1))
    temperature: float = setting(0.01, grid=(0.003, 0.01, 0.03))
    power: float = 1.0
    prune: float = setting(0.8, grid=(0.7, 0.8, 0.9), check=fraction)
    """The share of the free weights that a task gives back."""
    tolerance: float = -1.0
    """Percentage points that pruning may cost on held-out data, before the rest is trained again: the largest share
    from ``prune`` down to one half that costs no more is given back. Below 0 it is ``prune`` whatever it costs."""
    retraining: float = setting(1 / 3, check=fraction)
    """The share of the epochs after pruning."""
    ranking: Ranking = setting("snr", check=one_of(Ranking))
    """|mu|/sigma; 1/sigma; and the controls |mu|, mu^2 h with the curvature h, and random numbers."""
    whole_net: bool = False
    """Rank the weights of all tensors together, but let each keep ``floor`` of its free ones at least."""
    floor: float = 0.02
    warm: bool = True
    """Weights that a task gave back begin the next one with the means they had; else with fresh ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.power != 1.0 or self.uniform:
            raise ValueError("ucb-p-ng gives no weight a rate of its own: leave out power and uniform")
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor must be between 0 and 1, not {self.floor}")

    def shares(self) -> list[float]:
        """Return the shares that are tried, the largest first."""
        if self.tolerance < 0 or self.prune <= 0.5:
            return [self.prune]
        steps = round((self.prune - 0.5) / 0.05 + 0.499)
        return [self.prune - i * 0.05 for i in range(steps)] + [0.5]


@method
class UCBPNG(OwnedGaussians, UCBNGMethod):
    """Natural gradients on the free weights; then the task keeps those whose means stand out of their noise.

    What it gives back takes no part until the task is over, while the kept ones are trained again; from then on their
    means and sigmas stay. No weight has a rate of its own: it may move or it may not. Weights that are given back have
    the prior's precision in the next task.
    """

    name = "ucb-p-ng"
    summary = "UCB-P with sigma learnt from curvature: each task keeps the weights whose means stand out of their noise"
    paper = "this project's variant; Ebrahimi et al., ICLR 2020 (UCB-P), Khan et al. 2018 (VOGN)"
    memory = "curvature and precision of every weight, and its owner's index: ceil(log2(tasks + 1)) bits"
    needs_classes = True
    needs_boundaries = True
    settings: UCBPNGSettings
    remembered = ("is_retraining",)
    is_retraining = False
    """Whether what the task gave back takes no part now."""

    def make_optimizer(self, groups: list[Group]) -> UCBNG:
        """Return the natural-gradient optimiser without rates of single weights."""
        s = self.settings
        return UCBNG(groups, 1, s.lr, temperature=s.temperature, beta=s.beta, pull=s.pull, rates=False)

    def phases(self) -> tuple[float, ...]:
        """Train, then train again what is kept."""
        return 1 - self.settings.retraining, self.settings.retraining

    def begin_task(self, task: TaskInfo) -> None:
        """Let the weights begin that belong to no task."""
        self.is_retraining = False
        super().begin_task(task)
        if self.owners.tasks > 0:
            self.restart_free_weights(means=not self.settings.warm)

    def refresh(self) -> None:
        """Let the optimiser move free weights only, or the task's own, and set aside what it gave back."""
        super().refresh()
        number = 0 if self.task is None else self.task.index + 1
        self.optimizer.hold({g.mu: self.movable[n].bool() for n, g in self.shared_gaussians if n in self.movable})
        for name, gaussian in self.shared_gaussians:
            gaussian.prune(self.owners.used_by(name, number) if self.is_retraining else None)

    @torch.no_grad()
    def begin_phase(self, phase: int, data: TaskData) -> None:
        """Claim the weights that matter most, by the curvature at the present means."""
        assert self.held_out is not None
        self.optimizer.measure(self.objective, self.net, *self.held_out)
        omega = {name: self._rank(gaussian) for name, gaussian in self.shared_gaussians}
        shares = self.settings.shares()
        kept = self.select(omega, shares[0])
        if len(shares) > 1:
            kept, _ = self.prune(data, shares, omega, self.settings.tolerance)
        self.is_retraining = True
        self.claim(kept)

    def _rank(self, gaussian: Gaussian) -> Tensor:
        """Return how important each weight is."""
        kind, mu, sigma = self.settings.ranking, gaussian.mu, gaussian.sigma
        if kind == "snr" or kind == "certainty":
            return importance(kind, mu, sigma)
        if kind == "magnitude":
            return mu.abs()
        if kind == "fisher":
            curvature: Tensor = self.optimizer.state[mu]["curvature"]
            return curvature * mu.square()
        return torch.rand(mu.shape, generator=self.generator, device=mu.device)

    def select(self, omega: Weights, ratio: float) -> Masks:
        """Mark the free weights that are not among the least important, of each tensor or of the whole net."""
        if not self.settings.whole_net:
            return super().select(omega, ratio)
        free = {name: self.owners.free(name) for name in omega}
        sizes = [each.numel() for each in omega.values()]
        together = torch.cat([each.flatten() for each in omega.values()])
        among = torch.cat([each.flatten() for each in free.values()])
        pruned = least_important(together, ratio, among).split(sizes)
        least = super().select(omega, 1 - self.settings.floor)
        return {n: (free[n] & ~part.view_as(free[n])) | least[n] for n, part in zip(omega, pruned, strict=True)}

    def adjust_gradients(self) -> None:
        """Leave it to the optimiser to hold weights; only the length of a gradient must not count what is held."""
        if self.settings.clip > 0:
            super().adjust_gradients()

    def end_task(self, data: TaskData) -> None:
        """Let the task's curvature join the precision of its own weights."""
        super().end_task(data)
        self.is_retraining = False
        self.refresh()
