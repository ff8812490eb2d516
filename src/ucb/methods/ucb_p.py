"""UCB-P (Ebrahimi et al., ICLR 2020, Algorithm 3): a task keeps its most certain weights, the rest begins anew."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from ucb.bayes import checks, gaussians, mean_forward
from ucb.bayes.posterior import inverse_softplus
from ucb.methods.base import Asked, TaskData, TaskInfo, method
from ucb.methods.bbb_ft import BBBFineTuning, BBBSettings
from ucb.methods.owned import OwnedWeights
from ucb.nets import HeadedNet
from ucb.optim import Importance, importance, least_important


@dataclass(frozen=True)
class UCBPSettings(BBBSettings):
    """How weights are ranked, and how much accuracy pruning may cost. The paper tunes neither."""

    importance: Importance = "snr"
    tolerance: float = 1.0
    """The largest drop of the accuracy on held-out data, in percentage points."""
    step: float = 5.0
    """The distance between the pruning ratios that are tried, in percent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("importance", self.importance, get_args(Importance))
        checks.not_negative("tolerance", self.tolerance)
        if checks.positive("step", self.step) > 50:
            raise ValueError(f"step must be at most 50, not {self.step}: ratios lie between 50 and 100 percent")

    def ratios(self) -> list[float]:
        """Return the pruning ratios that are tried, the largest first and one half last."""
        number = math.ceil(50 / self.step - 1e-9)
        return [1 - i * self.step / 100 for i in range(number)] + [0.5]


@method
class UCBP(OwnedWeights, BBBFineTuning):
    """Bayes by Backprop whose weights, biases and normalisation too, belong to the task that needs them.

    At a task's end the free weights of each tensor are ranked. One ratio serves all tensors: the largest whose loss of
    accuracy is tolerable, by the mean weights on held-out data. (Samples would flatter pruning, which takes noise out.)
    Pruned weights are 0 without noise for this task. For the next one they begin anew, at their first spread and with
    fresh means: at 0, tensors of which little was kept would learn slowly, and be ranked low again.
    With several heads each belongs to its task whole.
    """

    name = "ucb-p"
    summary = "each task keeps its most certain weights, the others are free for the next"
    paper = "Ebrahimi et al., ICLR 2020"
    needs_boundaries = True
    judged_before_end = True
    settings_type = UCBPSettings
    settings: UCBPSettings

    def __init__(self, net: HeadedNet, settings: UCBPSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.first = {name: g.mu.detach().clone() for name, g in self.shared_gaussians if g.mu.dim() < 2}
        """The first means of biases and scales: few, and not random for all layers."""
        self.ratios: list[float] = []
        self.before_pruning: list[float] = []
        self.after_pruning: list[float] = []
        """Each task's held-out accuracy in percent, whole and pruned, with the ratio that was chosen."""

    def numbers_of_weights(self) -> dict[str, list[nn.Parameter]]:
        """Return mu and rho of every shared weight tensor."""
        self.shared_gaussians = [(name, g) for name, g in gaussians(self.net) if self.is_shared(name)]
        return {name: [g.mu, g.rho] for name, g in self.shared_gaussians}

    def begin_task(self, task: TaskInfo) -> None:
        """Let free weights begin anew."""
        super().begin_task(task)
        self.optimizer.state.clear()  # a velocity would move weights that are held by now
        if self.owners.tasks > 0:
            self._restart()

    @torch.no_grad()
    def _restart(self) -> None:
        for name, gaussian in self.shared_gaussians:
            free, sigma = self.owners.free(name), torch.empty_like(gaussian.mu)
            sigma[...] = self.start[name]
            if name in self.first:
                mean = self.first[name].to(gaussian.mu)
            else:  # uniform as PyTorch draws it, with the layer's first root mean square
                mean = torch.empty_like(gaussian.mu).uniform_(-1, 1, generator=self.generator)
                mean.mul_(sigma * (math.sqrt(3) / self.settings.spread))
            gaussian.mu.copy_(torch.where(free, mean, gaussian.mu))
            gaussian.rho.copy_(torch.where(free, inverse_softplus(sigma), gaussian.rho))

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Prune as much as the tolerance allows, without training again; what is left is the task's."""
        assert self.task is not None
        number = self.task.index + 1
        right, total = self._right(data)
        for ratio in self.settings.ratios():
            kept = self._kept(ratio)
            with self._using({n: mask | self.owners.used_by(n, number) for n, mask in kept.items()}):
                still_right, _ = self._right(data)
            if 100 * (right - still_right) <= self.settings.tolerance * total:
                break
        self.owners.claim(kept, number)
        self.hold()
        self.ratios.append(ratio)
        self.before_pruning.append(100 * right / total)
        self.after_pruning.append(100 * still_right / total)

    def _kept(self, ratio: float) -> dict[str, Tensor]:
        """Mark the free weights of each tensor that are not among the least important."""
        kept = {}
        for name, gaussian in self.shared_gaussians:
            free = self.owners.free(name)
            omega = importance(self.settings.importance, gaussian.mu, gaussian.sigma)
            kept[name] = free & ~least_important(omega, ratio, free)
        return kept

    def _right(self, data: TaskData) -> tuple[int, int]:
        """Return how many held-out examples the mean weights tell right among the task's classes, and of how many."""
        assert self.task is not None
        own, right, total = self.task.outputs, 0, 0
        self.net.eval()
        for x, y in data.validation():
            answers = mean_forward(self.net, x)[:, own.start : own.stop].argmax(1) + own.start
            right, total = right + int((answers == y).sum()), total + len(y)
        return right, total

    @contextmanager
    def _using(self, masks: dict[str, Tensor]) -> Iterator[None]:
        """Let only some of the shared weights take part for a while."""
        for name, gaussian in self.shared_gaussians:
            gaussian.prune(masks[name])
        try:
            yield
        finally:
            for _, gaussian in self.shared_gaussians:
                gaussian.prune(None)

    def logits(self, x: Tensor, asked: Asked, samples: int, generator: torch.Generator) -> Tensor:
        """Return the logits under the weights that the task kept and those of the tasks before it."""
        last = self.answering(asked)
        if last is None:
            return super().logits(x, asked, samples, generator)
        with self._using({name: self.owners.used_by(name, last) for name in self.ownable}):
            return super().logits(x, asked, samples, generator)

    def state_dict(self) -> dict[str, Any]:
        """Add what each pruning cost, and the first biases."""
        pruned = {"ratios": self.ratios, "before": self.before_pruning, "after": self.after_pruning}
        return {**super().state_dict(), "first": self.first, "pruned": {n: list(v) for n, v in pruned.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.first, pruned = state["first"], state["pruned"]
        self.ratios, self.before_pruning = list(pruned["ratios"]), list(pruned["before"])
        self.after_pruning = list(pruned["after"])
