"""Priors: what is assumed of a weight before any data is seen.

A prior answers for one weight tensor: ``log_prob`` and its derivative ``score``, elementwise, and, where it is known in
closed form, ``expected_log_prob`` under a Gaussian. ``of(name)`` picks the prior of one weight tensor of a net.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes.posterior import Gaussian, gaussians
from ucb.checks import count, finite, positive, positive_everywhere
from ucb.kernels import add_mixture_score, log_softplus, sum_log, sum_squares

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Prior(nn.Module):
    """A prior over weights. What it remembers is in buffers, so it travels with ``state_dict``."""

    is_closed = False
    """Whether ``expected_log_prob`` is known; if not, samples estimate it."""

    def of(self, name: str) -> Prior:
        """Return the prior of the weight tensor called ``name``."""
        return self

    def log_prob(self, w: Tensor) -> Tensor:
        """Return log p(w), elementwise."""
        raise NotImplementedError(f"{type(self).__name__} must define log_prob()")

    def score(self, w: Tensor) -> Tensor:
        """Return d log p(w) / dw, elementwise."""
        with torch.enable_grad():
            w = w.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.log_prob(w).sum(), w)
        return slope

    def add_score(self, w: Tensor, grad: Tensor, factor: float) -> Tensor:
        """Add ``factor`` times the score to ``grad``, in place; return the sum of log p(w)."""
        grad.add_(self.score(w), alpha=factor)
        return self.log_prob(w).sum()

    def expected_log_prob(self, mean: Tensor, sigma: Tensor) -> Tensor:
        """Return E log p(w) for w ~ N(mean, sigma^2), elementwise."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form: estimate it by samples")

    def add_expected_score(
        self, mean: Tensor, sigma: Tensor, grad_mean: Tensor, grad_sigma: Tensor, factor: float
    ) -> Tensor:
        """Add ``factor`` times the derivatives of ``expected_log_prob``, in place; return its sum."""
        with torch.enable_grad():
            mean, sigma = mean.detach().requires_grad_(), sigma.detach().requires_grad_()
            total = self.expected_log_prob(mean, sigma).sum()
            by_mean, by_sigma = torch.autograd.grad(total, (mean, sigma))
        grad_mean.add_(by_mean, alpha=factor)
        grad_sigma.add_(by_sigma, alpha=factor)
        return total.detach()


def _number_or_tensor(value: float | Tensor) -> Tensor:
    """Return a tensor; a plain number in double precision, which a single-precision weight does not notice."""
    return value.detach().clone() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


class Normal(Prior):
    """p(w) = N(mean, scale^2), with numbers, or with tensors that give every weight its own.

    >>> import torch, ucb
    >>> ucb.Normal(scale=0.5).log_prob(torch.zeros(3, 2)).shape  # for every weight by itself
    torch.Size([3, 2])
    >>> objective = ucb.ELBO(num_examples=500, prior=ucb.Normal(0.5))
    """

    is_closed = True
    mean: Tensor
    scale: Tensor

    def __init__(self, scale: float | Tensor = 1.0, mean: float | Tensor = 0.0) -> None:
        super().__init__()
        scale, mean = _number_or_tensor(scale), _number_or_tensor(mean)
        self.register_buffer("mean", finite("the mean of a prior", mean))
        self.register_buffer("scale", positive_everywhere("the spread of a prior", scale))

    def log_prob(self, w: Tensor) -> Tensor:
        """Return log p(w)."""
        return -0.5 * ((w - self.mean) / self.scale).square() - self.scale.log() - HALF_LOG_TWO_PI

    def score(self, w: Tensor) -> Tensor:
        """Return (mean - w) / scale^2."""
        return (self.mean - w) / self.scale.square()

    def expected_log_prob(self, mean: Tensor, sigma: Tensor) -> Tensor:
        """Return log p(mean) - (sigma / scale)^2 / 2."""
        return self.log_prob(mean) - 0.5 * (sigma / self.scale).square()

    def add_expected_score(
        self, mean: Tensor, sigma: Tensor, grad_mean: Tensor, grad_sigma: Tensor, factor: float
    ) -> Tensor:
        """Add ``factor`` times (m - mean) / scale^2 and -sigma / scale^2; return the sum of E log p."""
        if self.scale.shape == mean.shape:
            offset, spread = (mean - self.mean).div_(self.scale), sigma / self.scale
            squares = sum_squares(offset) + sum_squares(spread)
            grad_mean.addcdiv_(offset, self.scale, value=-factor)
            grad_sigma.addcdiv_(spread, self.scale, value=-factor)
            return -0.5 * squares - sum_log(self.scale) - mean.numel() * HALF_LOG_TWO_PI
        if self.scale.dim() > 0:
            return super().add_expected_score(mean, sigma, grad_mean, grad_sigma, factor)
        scale = float(self.scale)
        precision = scale**-2
        offset = mean - self.mean
        grad_mean.add_(offset, alpha=-factor * precision)
        grad_sigma.add_(sigma, alpha=-factor * precision)
        squares = sum_squares(offset) + sum_squares(sigma)
        return -0.5 * precision * squares - mean.numel() * (math.log(scale) + HALF_LOG_TWO_PI)


class ScaleMixture(Prior):
    """p(w) = pi N(0, sigma_1^2) + (1 - pi) N(0, sigma_2^2), the paper's prior (Algorithm 1, l_2).

    With the wider component taken out, log p = a + k w^2 + softplus(b + c w^2) with c <= 0: the exponential inside can
    only fade, so nothing overflows, cancels or turns into log 0, however large w is. The score is one sigmoid.

    - ``pi``: the share of the first component, between 0 and 1.
    - ``sigma_1``, ``sigma_2``: the standard deviations of the two components, above 0.

    >>> import torch, ucb
    >>> ucb.ScaleMixture(pi=0.25, sigma_1=1.0, sigma_2=0.01).log_prob(torch.zeros(3, 2)).shape
    torch.Size([3, 2])
    >>> objective = ucb.ELBO(num_examples=500, prior=ucb.ScaleMixture(pi=0.5))
    """

    def __init__(self, pi: float = 0.25, sigma_1: float = 1.0, sigma_2: float = math.exp(-6)) -> None:
        super().__init__()
        if not 0 < pi < 1:
            raise ValueError(f"pi must be between 0 and 1, not {pi}; with one component only, use Normal")
        self.pi = pi
        self.sigma_1 = positive("sigma_1", sigma_1)
        self.sigma_2 = positive("sigma_2", sigma_2)
        (wide, share), (narrow, rest) = sorted([(sigma_1, pi), (sigma_2, 1 - pi)], reverse=True)
        self.a = math.log(share / wide) - HALF_LOG_TWO_PI
        self.k = -0.5 / wide**2
        self.b = math.log(rest / narrow) - math.log(share / wide)
        self.c = -0.5 / narrow**2 - self.k
        if self.c < -torch.finfo(torch.float32).max:
            raise ValueError(f"{narrow} is too small a spread for single precision")

    def log_prob(self, w: Tensor) -> Tensor:
        """Return log p(w)."""
        square = w.square()
        return self.a + self.k * square + F.softplus(self.b + self.c * square)

    def score(self, w: Tensor) -> Tensor:
        """Return d log p / dw = 2 w (k + c sigmoid(b + c w^2))."""
        return torch.sigmoid(self.b + self.c * w.square()).mul(2 * self.c).add(2 * self.k).mul(w)

    def add_score(self, w: Tensor, grad: Tensor, factor: float) -> Tensor:
        """Do both from one evaluation of b + c w^2."""
        return add_mixture_score(w, grad, self.k, self.b, self.c, factor) + self.a * w.numel()

    def extra_repr(self) -> str:
        """Say the three numbers."""
        return f"pi={self.pi}, sigma_1={self.sigma_1}, sigma_2={self.sigma_2}"


class PreviousPosterior(Prior):
    """The posterior of an earlier moment, weight by weight: yesterday's posterior is today's prior (VCL).

    Weights that the net did not have then (a new head) get ``otherwise``.

    - ``net``: a Bayesian net; its means and sigmas are copied now.
    - ``otherwise``: a prior for other weights; by default ``Normal()``.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 2))
    >>> objective = ucb.ELBO(num_examples=500, prior=ucb.PreviousPosterior(net))
    >>> terms = objective(net, torch.randn(8, 20), torch.randint(2, (8,)))
    >>> abs(float(terms.kl)) < 1e-3  # nothing was learnt since
    True
    """

    def __init__(self, net: nn.Module, otherwise: Prior | None = None) -> None:
        super().__init__()
        self.otherwise = Normal() if otherwise is None else otherwise
        with torch.no_grad():
            # A module's name may hold no dot.
            known = {name.replace(".", "/"): Normal(F.softplus(g.rho), g.mu) for name, g in gaussians(net)}
        self.known = nn.ModuleDict(known)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state; of weights that it does not name nothing is known."""
        named = {key.split(".")[1] for key in state_dict if key.startswith("known.")}
        for key in [*self.known]:
            if key not in named:
                del self.known[key]
        return super().load_state_dict(state_dict, strict, assign)

    def of(self, name: str) -> Prior:
        """Return the remembered Gaussian of ``name``, or ``otherwise``."""
        key = name.replace(".", "/")
        found = self.known[key] if key in self.known else self.otherwise  # noqa: SIM401 (ModuleDict has no get)
        assert isinstance(found, Prior)
        return found

    def log_prob(self, w: Tensor) -> Tensor:
        """Refuse: a weight tensor must be named."""
        raise TypeError("a previous posterior holds one prior for each weight tensor: ask of(name)")

    score = log_prob


def expected_log_q(rho: Tensor) -> Tensor:
    """Return E_q[log q(w)] = -log sigma - (1 + log 2 pi) / 2, elementwise, where sigma may underflow."""
    return -log_softplus(rho) - (0.5 + HALF_LOG_TWO_PI)


def kl_divergence(
    net: nn.Module,
    prior: Prior,
    samples: int = 1,
    *,
    drawn: Mapping[Gaussian, Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return KL(q || p), summed over the weights that are learning and not pruned.

    A prior without a closed form is averaged over ``samples`` weight samples: those ``drawn`` already, [count, ...] for
    each weight tensor, and new ones where they do not suffice.
    """
    count("samples", samples)
    tensors = trainable_gaussians(net)
    refuse_empty(tensors)
    total = torch.zeros((), device=tensors[0][1].mu.device)
    for name, gaussian in tensors:
        sigma, keep = gaussian.sigma, gaussian.keep
        if keep is not None:
            sigma = sigma.where(keep, 1)  # a pruned weight has no spread; its element is dropped below
        if prior.of(name).is_closed:
            log_p = prior.of(name).expected_log_prob(gaussian.mean, sigma)
        else:
            known = None if drawn is None else drawn.get(gaussian)
            log_p = prior.of(name).log_prob(_draw_exactly(samples, known, gaussian, generator)).mean(0)
        elements = expected_log_q(gaussian.rho) - log_p
        total = total + (elements.sum() if keep is None else elements.where(keep, 0).sum())
    return total


def _draw_exactly(samples: int, known: Tensor | None, gaussian: Gaussian, generator: torch.Generator | None) -> Tensor:
    """Return [samples, ...] weight samples, known ones first."""
    if known is None:
        return gaussian.sample((samples,), generator)
    missing = samples - len(known)
    return known[:samples] if missing <= 0 else torch.cat([known, gaussian.sample((missing,), generator)])


def trainable_gaussians(net: nn.Module) -> list[tuple[str, Gaussian]]:
    """Return the Gaussians that the KL term covers: those not frozen with ``requires_grad_(False)``."""
    return [(name, gaussian) for name, gaussian in gaussians(net) if gaussian.is_learning]


def refuse_empty(tensors: Sized) -> None:
    """Refuse a net whose KL term would be empty."""
    if not len(tensors):
        raise ValueError("no Gaussian weight of the net is learning, so there is no KL term: see to_bayesian()")
