"""UCB-P (Ebrahimi et al., ICLR 2020, Algorithm 3): a task keeps its most certain weights, the rest begins anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from ucb.bayes import checks
from ucb.methods.base import TaskData, TaskInfo, method
from ucb.methods.bbb_ft import BBBFineTuning, BBBSettings
from ucb.methods.owned_gaussians import OwnedGaussians
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
class UCBP(OwnedGaussians, BBBFineTuning):
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
        self.ratios: list[float] = []
        self.before_pruning: list[float] = []
        self.after_pruning: list[float] = []
        """Each task's held-out accuracy in percent, whole and pruned, with the ratio that was chosen."""

    def begin_task(self, task: TaskInfo) -> None:
        """Let free weights begin anew."""
        super().begin_task(task)
        self.optimizer.state.clear()  # a velocity would move weights that are held by now
        if self.owners.tasks > 0:
            self.restart_free_weights()

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Prune as much as the tolerance allows, without training again; what is left is the task's."""
        assert self.task is not None
        number = self.task.index + 1
        right, total = self.count_right(data)
        for ratio in self.settings.ratios():
            kept = self._kept(ratio)
            with self.using({n: mask | self.owners.used_by(n, number) for n, mask in kept.items()}):
                still_right, _ = self.count_right(data)
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

    def state_dict(self) -> dict[str, Any]:
        """Add what each pruning cost."""
        pruned = {"ratios": self.ratios, "before": self.before_pruning, "after": self.after_pruning}
        return {**super().state_dict(), "pruned": {n: list(v) for n, v in pruned.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        pruned = state["pruned"]
        self.ratios, self.before_pruning = list(pruned["ratios"]), list(pruned["before"])
        self.after_pruning = list(pruned["after"])
