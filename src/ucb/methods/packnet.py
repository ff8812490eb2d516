"""PackNet (Mallya and Lazebnik, CVPR 2018): a task keeps its largest weights for good, later tasks learn the rest.

With it stands what it shares with UCB-P: weights that belong to tasks, and never change again once they do.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ucb.bayes.passes import Batch
from ucb.methods.base import EvalContext, Method, Settings, TaskData, TaskInfo, Weights, fraction, method, setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets.heads import HeadedNet, belongs_to_one_task
from ucb.optim import Owners

Masks = dict[str, Tensor]


class OwnedWeights(Method):
    """Mix it in before a method that learns by gradient descent.

    The trunk's weights have owners, and the head's too where all tasks share one. What they share besides, and running
    statistics, is learnt in the first task only. So a task that is over is answered alike, to the bit, ever after.
    """

    memory = "an owner's index a weight: ceil(log2(tasks + 1)) bits"
    needs_task = True
    remembered = ("owners",)

    def __init__(self, net: HeadedNet, settings: Any, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.ownable = self.ownable_parameters()
        self.owners = Owners({name: numbers[0] for name, numbers in self.ownable.items()})
        self.movable: Masks = {}
        """1 for the weights that may move now and 0 for those that may not, of tensors that have any of the latter.

        Numbers, because a product with them takes a small part of the time that a boolean mask does."""
        ownable = {id(p) for numbers in self.ownable.values() for p in numbers}
        self.unowned = [p for p in self.shared().values() if id(p) not in ownable]
        modules = [m for n, m in self.net.named_modules() if net.shares_head or not belongs_to_one_task(n)]
        self.normalisation_layers = [m for m in modules if getattr(m, "running_mean", None) is not None]

    @abstractmethod
    def ownable_parameters(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters that make up each weight tensor that tasks can own, by name."""

    def resume_task(self, task: TaskInfo) -> None:
        """Hold what has no owner after the first task."""
        super().resume_task(task)
        for parameter in self.unowned:
            parameter.requires_grad_(task.index == 0)

    def refresh(self) -> None:
        """Let the free weights move or, once the task has claimed some, those; and no others."""
        number = 0 if self.task is None else self.task.index + 1
        learning = number if self.owners.tasks >= number else 0
        masks = {name: owner == learning for name, owner in self.owners.of.items()}
        self.movable = {n: mask.to(self.ownable[n][0].dtype) for n, mask in masks.items() if not bool(mask.all())}

    def select(self, omega: Weights, ratio: float) -> Masks:
        """Mark the free weights of each tensor that are not among the ``ratio`` of them with the lowest importance."""
        return {name: self.owners.select(name, each, ratio) for name, each in omega.items()}

    def claim(self, masks: Masks) -> None:
        """Give free weights to the task at hand."""
        self.owners.claim(masks, self.current_task.index + 1)
        self.refresh()

    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the batch's gradient; running statistics rest after the first task."""
        if self.current_task.index > 0:
            for module in self.normalisation_layers:
                module.eval()
        return super().add_gradients(x, y)  # type: ignore[safe-super]  # the next kind of method in line says how

    def adjust_gradients(self) -> None:
        """Leave all weights alone that may not move."""
        for name, movable in self.movable.items():
            for parameter in self.ownable[name]:
                if parameter.grad is not None:
                    parameter.grad.mul_(movable)  # a step of 0 changes no bit

    def masks_for(self, context: EvalContext) -> Masks | None:
        """Mark the weights that answer: the task's and those before it, all owned ones for a task to come.

        None is the whole net.
        """
        claimed = self.owners.tasks
        is_under_way = self.task is not None and context.index == self.task.index >= claimed
        if claimed == 0 or is_under_way:
            return None
        return {name: self.owners.used_by(name, min(context.index + 1, claimed)) for name in self.ownable}


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
    settings: PackNetSettings

    def ownable_parameters(self) -> dict[str, list[nn.Parameter]]:
        """Return the shared matrices and kernels."""
        return {name: [p] for name, p in self.shared().items() if p.dim() > 1}

    def phases(self) -> tuple[float, ...]:
        """Train, then train again what is left."""
        return 1 - self.settings.retraining, self.settings.retraining

    @torch.no_grad()
    def begin_phase(self, phase: int, data: TaskData) -> None:
        """Set the smallest free weights to 0; the others are the task's."""
        kept = self.select({name: weight.abs() for name, (weight,) in self.ownable.items()}, self.settings.prune)
        for name, (weight,) in self.ownable.items():
            weight.masked_fill_(self.owners.free(name) & ~kept[name], 0)
        self.claim(kept)

    @torch.no_grad()
    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return the logits under the weights that the task had when it ended."""
        masks = self.masks_for(context)
        if masks is None:
            return super().logits(x, context, samples, generator)
        self.net.eval()
        used = {name: torch.where(masks[name], weight, 0) for name, (weight,) in self.ownable.items()}
        with self.net.using(context.head):
            logits: Tensor = functional_call(self.net, used, (x,))
        return logits.unsqueeze(0)
