"""PackNet (Mallya and Lazebnik, CVPR 2018): a task keeps its largest weights for good, later tasks learn the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ucb.methods.base import Asked, Settings, TaskData, chosen, method
from ucb.methods.ordinary import OrdinaryMethod
from ucb.methods.owned import OwnedWeights
from ucb.optim import least_important


@dataclass(frozen=True)
class PackNetSettings(Settings):
    """How much is pruned, and how long the rest is trained again."""

    prune: float = chosen(0.5, among=(0.5, 0.75))
    """The share of the free weights of each layer that a task gives back."""
    retraining: float = 1 / 3
    """The share of the epochs after pruning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("prune", "retraining"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1, not {getattr(self, name)}")


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

    def numbers_of_weights(self) -> dict[str, list[nn.Parameter]]:
        """Return the shared matrices and kernels."""
        return {n: [p] for n, p in self.net.named_parameters() if self.is_shared(n) and p.dim() > 1}

    def phases(self) -> tuple[float, ...]:
        """Train, then train again what is left."""
        return 1 - self.settings.retraining, self.settings.retraining

    @torch.no_grad()
    def begin_phase(self, phase: int, data: TaskData) -> None:
        """Set the smallest free weights to 0; the others are the task's."""
        assert self.task is not None
        kept = {}
        for name, (weight,) in self.ownable.items():
            free = self.owners.free(name)
            pruned = least_important(weight.abs(), self.settings.prune, free)
            weight.masked_fill_(pruned, 0)
            kept[name] = free & ~pruned
        self.owners.claim(kept, self.task.index + 1)
        self.hold()

    @torch.no_grad()
    def logits(self, x: Tensor, asked: Asked, samples: int, generator: torch.Generator) -> Tensor:
        """Return the logits under the weights that the task had when it ended."""
        last = self.answering(asked)
        if last is None:
            return super().logits(x, asked, samples, generator)
        self.net.eval()
        used = {n: torch.where(self.owners.used_by(n, last), weight, 0) for n, (weight,) in self.ownable.items()}
        with self.net.using(asked.head):
            logits: Tensor = functional_call(self.net, used, (x,))
        return logits.unsqueeze(0)
