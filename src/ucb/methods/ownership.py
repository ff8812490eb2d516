"""What the methods share whose weights belong to tasks (PackNet, UCB-P): what is owned never changes again."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ucb.bayes import gaussians, mean_forward
from ucb.kernels.softplus import inverse_softplus
from ucb.methods.base import EvalContext, Method, TaskData, TaskInfo
from ucb.methods.bayesian import BayesianMethod
from ucb.nets import HeadedNet
from ucb.nets.heads import belongs_to_one_task
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
        shared = [p for name, p in self.net.named_parameters() if self.net.is_shared(name)]
        self.unowned = [p for p in shared if p.requires_grad and id(p) not in ownable]
        one_head = len(net.heads) == 1
        modules = [m for name, m in self.net.named_modules() if one_head or not belongs_to_one_task(name)]
        self.normalisation_layers = [m for m in modules if getattr(m, "running_mean", None) is not None]

    @abstractmethod
    def ownable_parameters(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters that make up each weight tensor that tasks can own, by name."""

    def resume_task(self, task: TaskInfo) -> None:
        """Hold what has no owner after the first task."""
        super().resume_task(task)
        for parameter in self.unowned:
            parameter.requires_grad_(task.index == 0)

    def begin_task(self, task: TaskInfo) -> None:
        """Let the free weights learn, and no others."""
        super().begin_task(task)
        self.refresh()

    def movable_masks(self) -> Masks:
        """Mark the weights that may move: the free ones, or the task's own once it has claimed some.

        Tensors all of whose weights may move are left out.
        """
        number = 0 if self.task is None else self.task.index + 1
        learning = number if self.owners.tasks >= number else 0
        masks = {name: owner == learning for name, owner in self.owners.of.items()}
        return {name: mask for name, mask in masks.items() if not bool(mask.all())}

    def refresh(self) -> None:
        """Hold the weights that may not move now."""
        self.movable = {name: mask.to(self.ownable[name][0].dtype) for name, mask in self.movable_masks().items()}

    def claim(self, masks: Mapping[str, Tensor]) -> None:
        """Give free weights to the task at hand."""
        assert self.task is not None
        self.owners.claim(masks, self.task.index + 1)
        self.refresh()

    def add_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the batch's gradient; running statistics rest after the first task."""
        assert self.task is not None
        if self.task.index > 0:
            for module in self.normalisation_layers:
                module.eval()
        return super().add_gradients(x, y)  # type: ignore[safe-super]  # the next kind of method in line says how

    def adjust_gradients(self) -> None:
        """Leave all weights alone that may not move."""
        for name, movable in self.movable.items():
            for parameter in self.ownable[name]:
                if parameter.grad is not None:
                    parameter.grad.mul_(movable)  # a step of 0 changes no bit

    def masks_for(self, asked: EvalContext) -> Masks | None:
        """Mark the weights that answer: the task's and those before it, all owned ones for a task to come.

        None is the whole net.
        """
        claimed = self.owners.tasks
        is_under_way = self.task is not None and asked.index == self.task.index >= claimed
        if claimed == 0 or is_under_way:
            return None
        return {name: self.owners.used_by(name, min(asked.index + 1, claimed)) for name in self.ownable}


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
        self.shared_gaussians = [(name, g) for name, g in gaussians(self.net) if self.net.is_shared(name)]
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

    def prune_most(
        self, data: TaskData, shares: Sequence[float], select: Callable[[float], Masks], tolerance: float
    ) -> tuple[Masks, float, float, float]:
        """Return what ``select`` keeps at the first share whose loss of accuracy is tolerable, else at the last one.

        With it come the share and the held-out accuracy in percent before and after. It is that of the mean weights:
        samples would flatter pruning, which takes noise out.
        """
        assert self.task is not None
        right, total = self.count_right(data)
        for share in shares:
            kept = select(share)
            with self.using({n: mask | self.owners.used_by(n, self.task.index + 1) for n, mask in kept.items()}):
                still_right, _ = self.count_right(data)
            if 100 * (right - still_right) <= tolerance * total:
                break
        return kept, share, 100 * right / total, 100 * still_right / total

    def count_right(self, data: TaskData) -> tuple[int, int]:
        """Return how many held-out examples the mean weights tell right among the task's classes, and of how many."""
        assert self.task is not None
        own, right, total = self.task.outputs, 0, 0
        self.net.eval()
        for x, y in data.validation():
            answers = mean_forward(self.net, x)[:, own.start : own.stop].argmax(1) + own.start
            right, total = right + int((answers == y).sum()), total + len(y)
        return right, total

    @contextmanager
    def using(self, masks: Mapping[str, Tensor]) -> Iterator[None]:
        """Let only some of the shared weights take part for a while."""
        before = [gaussian.keep for _, gaussian in self.shared_gaussians]
        for name, gaussian in self.shared_gaussians:
            gaussian.prune(masks[name])
        try:
            yield
        finally:
            for (_, gaussian), keep in zip(self.shared_gaussians, before, strict=True):
                gaussian.keep = keep

    def logits(self, x: Tensor, asked: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return the logits under the weights that the task kept and those of the tasks before it."""
        masks = self.masks_for(asked)
        if masks is None:
            return super().logits(x, asked, samples, generator)
        with self.using(masks):
            return super().logits(x, asked, samples, generator)
