"""A Bayesian training step on a GPU, each loop over the weights one kernel; ``reference`` has the same in PyTorch.

Nothing here waits for the device or reads a number back, so a CUDA graph can record it, once every kernel that it needs
has run before. Numbers such as a learning rate are recorded with it; the seed is read from the device at every replay.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ucb.bayes.kernels.launch import available, blocks, launch, mask_of, serves, size_of, status
from ucb.bayes.kernels.noise import LocalNoise, check_noise, local_noise, new_seed, sample

__all__ = [
    "LocalNoise",
    "SampleWeights",
    "SigmaSquared",
    "available",
    "descend",
    "gradients",
    "local_noise",
    "natural",
    "new_seed",
    "sample",
    "sample_weights",
    "serves",
    "sigma_squared",
    "status",
]

Mixture = tuple[float, float, float]
"""k, b and c of f(w) = k w^2 + softplus(b + c w^2), c <= 0: the log of a scale mixture, but for a constant."""


def gradients(
    mu: Tensor,
    rho: Tensor,
    keep: Tensor | None,
    seed: Tensor,
    salt: int,
    grad_w: Tensor | None,
    prior_samples: int,
    mixture: Mixture | None,
    factor: float,
    entropy: float,
    out_mu: Tensor,
    out_rho: Tensor,
    add: bool,
) -> Tensor:
    """Write, or with ``add`` add, the gradients by mu and rho of what ``sample`` drew; 0 for a pruned weight.

    ``grad_w`` [S, ...] is the gradient by every sample; factor * f(w) of the first ``prior_samples`` samples and
    -entropy * log sigma join the loss. Return the sums of f(w) and of log sigma over each block: [blocks, 2].
    """
    n = size_of(mu, rho, out_mu, out_rho)
    samples = 0 if grad_w is None else _samples_in(grad_w, mu)
    if mixture is None:
        prior_samples, mixture = 0, (0.0, 0.0, 0.0)
    most = max(samples, prior_samples)
    check_noise(n, most, seed, mu)
    parts = torch.empty((blocks(n), 2), dtype=mu.dtype, device=mu.device)
    numbers = [float(x) for x in (*mixture, factor, entropy)]
    tensors = (mu, rho, mask_of(keep, mu), seed, salt, grad_w, out_mu, out_rho, parts)
    counts = {"samples": samples, "prior_samples": prior_samples, "most": most}
    launch("gradients_kernel", n, *tensors, n, *numbers, **counts, add=add)
    return parts


def _samples_in(grad_w: Tensor, mu: Tensor) -> int:
    fits = grad_w.shape[1:] == mu.shape and grad_w.dtype == mu.dtype and grad_w.device == mu.device
    if not fits or not grad_w.is_contiguous():
        raise ValueError(f"grad_w must be contiguous {mu.dtype} of [samples, *{tuple(mu.shape)}] on {mu.device}")
    return grad_w.shape[0]


def descend(
    mu: Tensor,
    rho: Tensor,
    grad_mu: Tensor,
    grad_rho: Tensor,
    scale_mu: Tensor | None,
    scale_rho: Tensor | None,
    keep: Tensor | None,
    lr: float,
    rho_lr: float,
) -> None:
    """Step in place: mu by -lr * scale_mu * grad_mu, rho by -rho_lr * scale_rho * grad_rho. A pruned weight stays."""
    tensors = (mu, rho, grad_mu, grad_rho, scale_mu, scale_rho)
    n = size_of(*tensors)
    launch("descend_kernel", n, *tensors, mask_of(keep, mu), n, float(lr), float(rho_lr))
    _mark_as_written(mu, rho)


def natural(
    mu: Tensor,
    rho: Tensor,
    grad_mu: Tensor,
    grad_rho: Tensor,
    curvature: Tensor,
    precision: Tensor,
    scale: Tensor | None,
    keep: Tensor | None,
    lr: float,
    temperature: float,
    size: int,
    beta: float,
) -> None:
    """Take one step of :class:`ucb.optim.UCBNG` in place, on mu, rho and the curvature.

    A pruned weight's mu and rho stay; its curvature is stepped with the others'.
    """
    tensors = (mu, rho, grad_mu, grad_rho, curvature, precision, scale)
    n = size_of(*tensors)
    launch("natural_kernel", n, *tensors, mask_of(keep, mu), n, float(lr), temperature / size, float(beta))
    _mark_as_written(mu, rho, curvature)


class SigmaSquared(torch.autograd.Function):
    """softplus(rho)^2, and 0 where pruned."""

    @staticmethod
    def forward(ctx: Any, rho: Tensor, keep: Tensor | None) -> Tensor:
        """Square sigma."""
        ctx.save_for_backward(rho, keep)
        return _squared(rho, keep, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return grad * 2 sigma * sigmoid(rho)."""
        rho, keep = ctx.saved_tensors
        return _squared(rho, keep, grad.contiguous()), None


def _squared(rho: Tensor, keep: Tensor | None, grad: Tensor | None) -> Tensor:
    n, out = size_of(rho, grad), torch.empty_like(rho)
    launch("squared_kernel", n, rho, mask_of(keep, rho), grad, out, n)
    return out


class SampleWeights(torch.autograd.Function):
    """``sample`` as a step of autograd: the noise is made again in backward, which keeps none of it."""

    @staticmethod
    def forward(
        ctx: Any, mu: Tensor, rho: Tensor, keep: Tensor | None, seed: Tensor, salt: int, samples: int
    ) -> Tensor:
        """Draw [samples, ...] weights."""
        ctx.save_for_backward(mu, rho, keep, seed)
        ctx.salt = salt
        return sample(mu, rho, keep, seed, salt, samples)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Pass the gradient on: dw/dmu = 1, dw/dsigma = eps."""
        mu, rho, keep, seed = ctx.saved_tensors
        by_mu, by_rho = torch.empty_like(mu), torch.empty_like(rho)
        gradients(mu, rho, keep, seed, ctx.salt, grad.contiguous(), 0, None, 0.0, 0.0, by_mu, by_rho, False)
        return by_mu, by_rho, None, None, None, None


def sigma_squared(rho: Tensor, keep: Tensor | None) -> Tensor:
    """Return softplus(rho)^2, and 0 where pruned."""
    apply: Any = SigmaSquared.apply
    return cast(Tensor, apply(rho, keep))


def sample_weights(mu: Tensor, rho: Tensor, keep: Tensor | None, seed: Tensor, salt: int, samples: int) -> Tensor:
    """Return [samples, ...] weights that pass their gradients on to mu and rho."""
    apply: Any = SampleWeights.apply
    return cast(Tensor, apply(mu, rho, keep, seed, salt, samples))


def _mark_as_written(*tensors: Tensor) -> None:
    """Tell autograd, which does not see a kernel write, that what it has kept of these tensors is out of date."""
    for t in tensors:
        increment_version(t)
