"""PackNet (Mallya and Lazebnik, CVPR 2018): a task keeps its largest weights for good, later tasks learn the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ucb.methods.base import EvalContext, Settings, TaskData, fraction, method, setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.methods.ownership import OwnedWeights


@dataclass(frozen=True)
class PackNetSettings(Settings):
    """How much is pruned, and how long the rest is trained again."""

    prune: float = setting(0.5, grid=(0.5, 0.75), check=fraction)
    """The share of the free weights of each layer that a task gives back."""
    retraining: float = setting(1 / 3, check=fraction)
    """The share of the epochs after pruning."""


@method
class PackNet(OwnedWeights, OrdinaryMethod):
    """Trains the free weights, prunes the smallest of each layer to 0 and trains the kept ones again.

    Only weight matrices and kernels are pruned and owned; biases and normalisation are learnt with the first task and
    stay, as in the paper. Pruned weights begin the next task at 0. What the last task prunes stays free.
    """

    name = "packnet"
    summary = "each task keeps its largest weights, the others are free for the next"
    paper = "Mallya and Lazebnik, CVPR 2018"
    settings_type = PackNetSettings
    settings: PackNetSettings

    def ownable_parameters(self) -> dict[str, list[nn.Parameter]]:
        """Return the shared matrices and kernels."""
        return {n: [p] for n, p in self.net.named_parameters() if self.net.is_shared(n) and p.dim() > 1}

    def phases(self) -> tuple[float, ...]:
        """Train, then train again what is left."""
        return 1 - self.settings.retraining, self.settings.retraining

    @torch.no_grad()
    def begin_phase(self, phase: int, data: TaskData) -> None:
        """Set the smallest free weights to 0; the others are the task's."""
        kept = {n: self.owners.select(n, w.abs(), self.settings.prune) for n, (w,) in self.ownable.items()}
        for name, (weight,) in self.ownable.items():
            weight.masked_fill_(self.owners.free(name) & ~kept[name], 0)
        self.claim(kept)

    @torch.no_grad()
    def logits(self, x: Tensor, asked: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return the logits under the weights that the task had when it ended."""
        masks = self.masks_for(asked)
        if masks is None:
            return super().logits(x, asked, samples, generator)
        self.net.eval()
        used = {name: torch.where(masks[name], weight, 0) for name, (weight,) in self.ownable.items()}
        with self.net.using(asked.head):
            logits: Tensor = functional_call(self.net, used, (x,))
        return logits.unsqueeze(0)
