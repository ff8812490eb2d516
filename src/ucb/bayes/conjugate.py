"""A linear layer whose posterior is exact: Bayesian regression from features to classes, one example after another.

With targets y (one-hot, 1 and 0), noise of variance s^2 and the prior w ~ N(0, s^2 / ridge), the posterior of every
output's weights is N(A^-1 b, s^2 A^-1) with A = ridge + sum phi phi^T and b = sum phi y. Both are sums over examples:
it does not matter in which order these come, nor in how many portions, and what was learnt from data that is long gone
is as good as if it were here. Memory does not grow with the data.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ucb.checks import count, finite, positive


class Scores(NamedTuple):
    """What the head expects of every output, and how unsure it is of that beyond the noise, in units of s^2."""

    mean: Tensor
    variance: Tensor


class ConjugateHead(nn.Module):
    """Keeps A without its ridge, b, and how often each class came; solves when it is asked.

    Sums are kept in double precision. ``outputs`` can grow.
    """

    gram: Tensor
    moments: Tensor
    counts: Tensor

    def __init__(self, features: int, outputs: int, ridge: float = 1.0) -> None:
        super().__init__()
        self.ridge = positive("ridge", ridge)
        size = count("features", features) + 1  # the last one is always 1
        self.register_buffer("gram", torch.zeros(size, size, dtype=torch.float64))
        self.register_buffer("moments", torch.zeros(size, count("outputs", outputs, 0), dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(outputs, dtype=torch.float64))
        self._factor: Tensor | None = None
        self._weights: Tensor | None = None

    @torch.no_grad()
    def add(self, features: Tensor, target: Tensor, times: float = 1) -> None:
        """Learn from examples: features [rows, F] and class indices; each counts so many times, -1 takes it out."""
        phi = self._with_one(finite("the features", features))
        self.gram.addmm_(phi.T, phi, alpha=times)
        self.moments.index_add_(1, target, phi.T, alpha=times)
        self.counts += times * torch.bincount(target, minlength=len(self.counts))
        self._factor = self._weights = None

    def grow(self, outputs: int) -> None:
        """Make room for more classes: what is known of the others stays."""
        more = outputs - self.moments.shape[1]
        if more > 0:
            self.moments = torch.cat([self.moments, self.moments.new_zeros(len(self.moments), more)], 1)
            self.counts = torch.cat([self.counts, self.counts.new_zeros(more)])
            self._weights = None

    def set_ridge(self, ridge: float) -> None:
        """Change how strongly the weights are drawn to 0; the sums know nothing of it."""
        self.ridge = positive("ridge", ridge)
        self._factor = self._weights = None

    @property
    def factor(self) -> Tensor:
        """The Cholesky factor of A."""
        if self._factor is None:
            whole = self.gram.clone()
            whole.diagonal().add_(self.ridge)
            self._factor = torch.linalg.cholesky(whole)
        return self._factor

    @property
    def weights(self) -> Tensor:
        """The posterior mean A^-1 b, [F + 1, outputs]."""
        if self._weights is None:
            self._weights = torch.cholesky_solve(self.moments, self.factor)
        return self._weights

    @torch.no_grad()
    def noise(self) -> Tensor:
        """Return s^2 of every output: the mean square of what the posterior mean leaves unexplained."""
        explained = (self.moments * self.weights).sum(0)
        return (self.counts - explained).clamp_min(0) / self.counts.sum().clamp_min(1)

    @torch.no_grad()
    def forward(self, features: Tensor) -> Tensor:
        """Return the expected score of every output."""
        return (self._with_one(features) @ self.weights).to(features.dtype)

    @torch.no_grad()
    def scores(self, features: Tensor) -> Scores:
        """Return the scores and phi^T A^-1 phi, which is large far from everything that was learnt."""
        phi = self._with_one(features)
        away = torch.linalg.solve_triangular(self.factor, phi.T, upper=False)
        return Scores((phi @ self.weights).to(features.dtype), away.square().sum(0).to(features.dtype))

    def _with_one(self, features: Tensor) -> Tensor:
        phi = features.to(self.gram.dtype)
        return torch.cat([phi, phi.new_ones(len(phi), 1)], 1)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        found = state_dict.get(prefix + "counts")
        if found is not None:
            self.grow(len(found))
        self._factor = self._weights = None
        super()._load_from_state_dict(state_dict, prefix, *args)
