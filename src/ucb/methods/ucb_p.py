"""UCB-P (Ebrahimi et al., ICLR 2020, Algorithm 3): a task keeps its most certain weights, the rest begins anew."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ucb import checks
from ucb.methods.base import TaskData, TaskInfo, method, one_of, setting
from ucb.methods.bbb import BBBFineTuning, BBBSettings
from ucb.methods.ownership import OwnedGaussians
from ucb.nets import HeadedNet
from ucb.optim import Importance, importance


@dataclass(frozen=True)
class UCBPSettings(BBBSettings):
    """How weights are ranked, and how much accuracy pruning may cost. The paper tunes neither."""

    importance: Importance = setting("snr", check=one_of(Importance))
    tolerance: float = setting(1.0, check=checks.not_negative)
    """The largest drop of the accuracy on held-out data, in percentage points."""
    step: float = setting(5.0, check=checks.positive)
    """The distance between the pruning ratios that are tried, in percent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step > 50:
            raise ValueError(f"step must be at most 50, not {self.step}: ratios lie between 50 and 100 percent")

    def ratios(self) -> list[float]:
        """Return the pruning ratios that are tried, the largest first and one half last."""
        number = math.ceil(50 / self.step - 1e-9)
        return [1 - i * self.step / 100 for i in range(number)] + [0.5]


@method
class UCBP(OwnedGaussians, BBBFineTuning):
    """Bayes by Backprop whose weights, biases and normalisation too, belong to the task that needs them.

    At a task's end the free weights of each tensor are ranked. One ratio serves all tensors: the largest whose loss of
    accuracy is tolerable, by the mean weights on held-out data.
    Pruned weights are 0 without noise for this task. For the next one they begin anew, at their first spread and with
    fresh means: at 0, tensors of which little was kept would learn slowly, and be ranked low again.
    With several heads each belongs to its task whole.
    """

    name = "ucb-p"
    summary = "each task keeps its most certain weights, the others are free for the next"
    paper = "Ebrahimi et al., ICLR 2020"
    needs_boundaries = True
    evaluated_before_end = True
    settings_type = UCBPSettings
    settings: UCBPSettings
    remembered = ("pruned",)

    def __init__(self, net: HeadedNet, settings: UCBPSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.pruned: dict[str, list[float]] = {"ratios": [], "before": [], "after": []}
        """For each task the ratio that was chosen, and its held-out accuracy in percent, whole and pruned."""

    def begin_task(self, task: TaskInfo) -> None:
        """Let free weights begin anew."""
        super().begin_task(task)
        self.optimizer.state.clear()  # a velocity would move weights that are held by now
        if self.owners.tasks > 0:
            self.restart_free_weights()

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Prune as much as the tolerance allows, without training again; what is left is the task's."""
        omega = {n: importance(self.settings.importance, g.mu, g.sigma) for n, g in self.shared_gaussians}
        kept, ratio, before, after = self.prune_most(
            data,
            self.settings.ratios(),
            lambda ratio: {name: self.owners.select(name, omega[name], ratio) for name in omega},
            self.settings.tolerance,
        )
        self.claim(kept)
        for name, value in {"ratios": ratio, "before": before, "after": after}.items():
            self.pruned[name].append(value)
