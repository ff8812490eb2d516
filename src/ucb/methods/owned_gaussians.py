"""What UCB-P and UCB-P-NG share: Gaussian weights, biases and normalisation too, that belong to tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ucb.bayes import gaussians, mean_forward
from ucb.bayes.posterior import inverse_softplus
from ucb.methods.base import Asked, TaskData
from ucb.methods.bayesian import BayesianMethod
from ucb.methods.owned import OwnedWeights
from ucb.nets import HeadedNet


class OwnedGaussians(OwnedWeights, BayesianMethod):
    """Mix it in before a Bayesian method. Weights that take no part for a task have mean 0 and no noise."""

    def __init__(self, net: HeadedNet, settings: Any, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.first = {name: g.mu.detach().clone() for name, g in self.shared_gaussians if g.mu.dim() < 2}
        """The first means of biases and scales: few, and not random for all layers."""

    def numbers_of_weights(self) -> dict[str, list[nn.Parameter]]:
        """Return mu and rho of every shared weight tensor."""
        self.shared_gaussians = [(name, g) for name, g in gaussians(self.net) if self.is_shared(name)]
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
                mean.mul_(sigma * (math.sqrt(3) / self.settings.spread))
            gaussian.mu.copy_(torch.where(free, mean, gaussian.mu))

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

    def logits(self, x: Tensor, asked: Asked, samples: int, generator: torch.Generator) -> Tensor:
        """Return the logits under the weights that the task kept and those of the tasks before it."""
        last = self.answering(asked)
        if last is None:
            return super().logits(x, asked, samples, generator)
        with self.using({name: self.owners.used_by(name, last) for name in self.ownable}):
            return super().logits(x, asked, samples, generator)

    def state_dict(self) -> dict[str, Any]:
        """Add the first biases."""
        return {**super().state_dict(), "first": self.first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.first = state["first"]
