"""UCB-P (Ebrahimi et al., ICLR 2020, Algorithm 3): a task keeps its most certain weights, the rest begins anew."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ucb import checks
from ucb.bayes import gaussians, mean_forward
from ucb.bayes.passes import Batch
from ucb.kernels import inverse_softplus
from ucb.methods.base import EvalContext, TaskData, TaskInfo, Weights, method, one_of, setting
from ucb.methods.bayesian import BayesianMethod
from ucb.methods.bbb import BBBFineTuning, BBBSettings
from ucb.methods.packnet import Masks, OwnedWeights
from ucb.nets import HeadedNet
from ucb.optim import Importance, importance


class OwnedGaussians(OwnedWeights, BayesianMethod):
    """Mix it in before a Bayesian method: Gaussian weights, biases and normalisation too, belong to tasks.

    Weights that take no part for a task have mean 0 and no noise.
    """

    remembered = ("first",)

    def __init__(self, net: HeadedNet, settings: Any, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.first = {name: g.mu.detach().clone() for name, g in self.shared_gaussians if g.mu.dim() < 2}
        """The first means of biases and scales: few, and not random for all layers."""

    def ownable_parameters(self) -> dict[str, list[nn.Parameter]]:
        """Return mu and rho of every shared weight tensor."""
        shared = [(name, g) for name, g in gaussians(self.net) if self.net.is_shared(name)]
        self.shared_gaussians = [(name, g) for name, g in shared if g.mu.requires_grad or name.startswith("heads.")]
        return {name: [g.mu, g.rho] for name, g in self.shared_gaussians}

    @torch.no_grad()
    def restart_free_weights(self, *, means: bool = True) -> None:
        """Let free weights begin at their first spread and, with ``means``, with fresh means."""
        for name, gaussian in self.shared_gaussians:
            free, sigma = self.owners.free(name), torch.empty_like(gaussian.mu)
            sigma[...] = self.start[name]
            gaussian.rho.copy_(torch.where(free, inverse_softplus(sigma), gaussian.rho))
            if not means:
                continue
            if name in self.first:
                mean = self.first[name].to(gaussian.mu)
            else:  # uniform as PyTorch draws it, with the layer's first root mean square
                mean = torch.empty_like(gaussian.mu).uniform_(-1, 1, generator=self.generator)
                mean.mul_(sigma * (math.sqrt(3) / self.settings.init_std_ratio))
            gaussian.mu.copy_(torch.where(free, mean, gaussian.mu))

    def prune(self, data: TaskData, shares: list[float], omega: Weights, tolerance: float) -> tuple[Masks, list[float]]:
        """Return what is kept by importance at the first share whose loss of accuracy is tolerable, else at the last.

        With it come the share and the held-out accuracy in percent before and after. It is that of the mean weights:
        samples would flatter pruning, which takes noise out.
        """
        number, (right, total) = self.current_task.index + 1, self.count_right(data)
        for share in shares:
            kept = self.select(omega, share)
            with self.using({name: mask | self.owners.used_by(name, number) for name, mask in kept.items()}):
                still_right, _ = self.count_right(data)
            if 100 * (right - still_right) <= tolerance * total:
                break
        return kept, [share, 100 * right / total, 100 * still_right / total]

    def count_right(self, data: TaskData) -> tuple[int, int]:
        """Return how many held-out examples the mean weights tell right among the task's classes, and of how many."""
        own, right, total = self.current_task.outputs, 0, 0
        self.net.eval()
        for x, y in data.validation():
            answers = mean_forward(self.net, x)[:, own.start : own.stop].argmax(1) + own.start
            right, total = right + int((answers == y).sum()), total + len(y)
        return right, total

    @contextmanager
    def using(self, masks: Masks) -> Iterator[None]:
        """Let only some of the shared weights take part for a while."""
        with ExitStack() as undo:
            for name, gaussian in self.shared_gaussians:
                undo.callback(setattr, gaussian, "keep", gaussian.keep)
                gaussian.prune(masks[name])
            yield

    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return the logits under the weights that the task kept and those of the tasks before it."""
        masks = self.masks_for(context)
        with nullcontext() if masks is None else self.using(masks):
            return super().logits(x, context, samples, generator)


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
    needs_classes = True
    needs_boundaries = True
    evaluated_before_end = True
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
        kept, figures = self.prune(data, self.settings.ratios(), omega, self.settings.tolerance)
        self.claim(kept)
        for name, figure in zip(("ratios", "before", "after"), figures, strict=True):
            self.pruned[name].append(figure)
