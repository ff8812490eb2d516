"""How important a weight is (Eq. 6 and 7 of the paper), and what follows from it.

Important weights learn more slowly (UCB, Eq. 4 and 5), or belong to a task and do not change (UCB-P, PackNet; Algorithm
3). A pruned weight's mean and noise are switched off by :meth:`ucb.bayes.Gaussian.prune`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ucb.bayes.posterior import Gaussian
from ucb.checks import check_mask, count, one_of, positive
from ucb.optim.base import PerWeightOptimizer

Importance = Literal["certainty", "snr"]


@dataclass(frozen=True)
class RateScale:
    """The factor on a weight's learning rate: gain / Omega, at most ``cap``.

    ``certainty`` is Omega = 1 / sigma (Eq. 6): the rate shrinks with the spread. ``snr`` is Omega = |mu| / sigma
    (Eq. 7), which vanishes at mu = 0: without a cap (``cap=None``) such a weight's rate is boundless.
    """

    importance: Importance = "certainty"
    gain: float = 1.0
    cap: float | None = 1.0

    def __post_init__(self) -> None:
        one_of("importance", self.importance, get_args(Importance))
        positive("gain", self.gain)
        if self.cap is not None:
            positive("cap", self.cap)

    def __call__(self, mu: Tensor, sigma: Tensor) -> Tensor:
        """Return the factor for every weight."""
        scale = self.gain / importance(self.importance, mu, sigma)
        return scale.clamp_max(torch.finfo(scale.dtype).max if self.cap is None else self.cap)


def importance(kind: Importance, mu: Tensor, sigma: Tensor) -> Tensor:
    """Return Omega for every weight."""
    return torch.reciprocal(sigma) if kind == "certainty" else mu.abs() / sigma


def least_important(importance: Tensor, ratio: float, among: Tensor | None = None) -> Tensor:
    """Mark the ``ratio`` (0 to 1) of weights with the lowest importance, among those where ``among`` is True."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"a pruning ratio must be between 0 and 1, not {ratio}")
    candidates = torch.ones_like(importance, dtype=torch.bool) if among is None else check_mask(among, importance)
    places = candidates.view(-1).nonzero().squeeze(1)
    order = importance.reshape(-1)[places].argsort(stable=True)
    marked = torch.zeros_like(candidates).view(-1)
    marked[places[order[: round(ratio * len(places))]]] = True
    return marked.view_as(importance)


class Freeze:
    """Holds weights still under an optimiser: where a mask is True, a weight does not change by one bit.

    ``masks`` maps Gaussians (mu and rho are held) or parameters to boolean masks. It works with every
    ``torch.optim`` optimiser, momentum or not, until ``remove()``.
    """

    def __init__(self, optimizer: Optimizer, masks: Mapping[Gaussian | nn.Parameter, Tensor]) -> None:
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self.masks: dict[nn.Parameter, Tensor] = {}
        self.held: dict[nn.Parameter, Tensor] = {}
        for weight, mask in masks.items():
            for parameter in (weight.mu, weight.rho) if isinstance(weight, Gaussian) else (weight,):
                self.masks[parameter] = check_mask(mask, parameter)
                if id(parameter) not in known:
                    raise ValueError(f"a mask is for a weight of shape {tuple(parameter.shape)} that is not optimised")
        self._optimizer = optimizer
        if isinstance(optimizer, PerWeightOptimizer):  # the end of a task moves sigma outside of a step
            optimizer.frozen.update(self.masks)
        self._hooks = (optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after))

    def remove(self) -> None:
        """Let the weights move again."""
        for hook in self._hooks:
            hook.remove()
        if isinstance(self._optimizer, PerWeightOptimizer):
            for parameter in self.masks:
                self._optimizer.frozen.pop(parameter, None)

    @torch.no_grad()
    def _before(self, *_: Any) -> None:
        for parameter, mask in self.masks.items():
            if parameter.grad is not None:
                parameter.grad.masked_fill_(mask, 0)  # so that momentum does not remember it either
            self.held[parameter] = parameter.detach().clone()

    @torch.no_grad()
    def _after(self, *_: Any) -> None:
        for parameter, mask in self.masks.items():
            parameter.copy_(torch.where(mask, self.held.pop(parameter), parameter))


class Owners:
    """An index for every weight: 0 is free, t belongs to task number t (the first is 1) for good.

    Task t answers with the weights of tasks 1 .. t. In the state, n tasks take ceil(log2(n + 1)) bits a weight.
    """

    MOST = 255

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.of = {name: torch.zeros_like(weight, dtype=torch.uint8) for name, weight in weights.items()}
        self.tasks = 0
        """The last task that claimed weights."""

    def claim(self, masks: Mapping[str, Tensor], task: int) -> None:
        """Give the free weights where a mask is True to a task."""
        if count("a task's number", task) > self.MOST:
            raise ValueError(f"weights can belong to {self.MOST} tasks, and this is task {task}")
        claims = {name: check_mask(mask, self.of[name]) for name, mask in masks.items()}
        for name, claimed in claims.items():
            if bool((claimed & ~self.free(name)).any()):
                raise ValueError(f"task {task} claims weights of {name} that belong to an earlier task")
        for name, claimed in claims.items():
            self.of[name].masked_fill_(claimed, task)
        self.tasks = max(self.tasks, task)

    def free(self, name: str) -> Tensor:
        """Mark the weights that belong to no task."""
        return self.of[name] == 0

    def select(self, name: str, importance: Tensor, ratio: float) -> Tensor:
        """Mark the free weights that are not among the ``ratio`` of them with the lowest importance."""
        free = self.free(name)
        return free & ~least_important(importance, ratio, free)

    def used_by(self, name: str, task: int) -> Tensor:
        """Mark the weights that a task answers with: its own and those of the tasks before it."""
        return (self.of[name] > 0) & (self.of[name] <= task)

    def state_dict(self) -> dict[str, Any]:
        """Return the indices of all weights, one after the other, in as few bits as they need."""
        flat = torch.cat([owner.flatten() for owner in self.of.values()])
        return {"tasks": self.tasks, "packed": pack(flat, self.tasks.bit_length())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo ``state_dict``; weights that have come since, the last ones, belong to no task."""
        self.tasks = state["tasks"]
        sizes = [owner.numel() for owner in self.of.values()]
        packed, bits = state["packed"], self.tasks.bit_length()
        missing = -(-sum(sizes) * bits // 8) - len(packed)
        whole = torch.nn.functional.pad(packed, (0, max(0, missing)))
        parts = unpack(whole, bits, sum(sizes)).split(sizes)
        for owner, part in zip(self.of.values(), parts, strict=True):
            owner.copy_(part.view(owner.shape))


def pack(values: Tensor, bits: int) -> Tensor:
    """Return whole numbers below 2^bits as bytes, with no bit between one and the next."""
    single = (values.unsqueeze(1) >> torch.arange(bits, dtype=torch.uint8, device=values.device)) & 1
    stream = torch.nn.functional.pad(single.flatten(), (0, -single.numel() % 8)).view(-1, 8)
    return (stream << torch.arange(8, dtype=torch.uint8, device=values.device)).sum(1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int, number: int) -> Tensor:
    """Undo ``pack`` for so many values."""
    stream = (packed.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    single = stream.flatten()[: number * bits].view(number, bits)
    return (single << torch.arange(bits, dtype=torch.uint8, device=packed.device)).sum(1, dtype=torch.uint8)
