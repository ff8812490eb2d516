"""Weights that must not change (UCB-P, PackNet), and which ones to choose. Algorithm 3 of the paper.

A pruned weight's mean and noise are switched off by :meth:`ucb.bayes.Gaussian.prune`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ucb.bayes.checks import fitting_mask
from ucb.bayes.posterior import Gaussian
from ucb.optim.base import PerWeightOptimizer


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
                self.masks[parameter] = fitting_mask(mask, parameter)
                if id(parameter) not in known:
                    raise ValueError(f"a mask is for a weight of shape {tuple(parameter.shape)} that is not optimised")
        self._optimizer = optimizer
        if isinstance(optimizer, PerWeightOptimizer):  # the end of a task moves sigma outside of a step
            optimizer.frozen.update(self.masks)
        self._hooks = (
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        )

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


def least_important(importance: Tensor, ratio: float, among: Tensor | None = None) -> Tensor:
    """Mark the ``ratio`` (0 to 1) of weights with the lowest importance, among those where ``among`` is True."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"a pruning ratio must be between 0 and 1, not {ratio}")
    candidates = torch.ones_like(importance, dtype=torch.bool) if among is None else fitting_mask(among, importance)
    places = candidates.view(-1).nonzero().squeeze(1)
    order = importance.reshape(-1)[places].argsort(stable=True)
    marked = torch.zeros_like(candidates).view(-1)
    marked[places[order[: round(ratio * len(places))]]] = True
    return marked.view_as(importance)
