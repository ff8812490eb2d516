"""Noise that is made where it is used, and made again instead of kept.

One counter of the Philox generator gives four normals. Element i of a tensor of n elements gets, under sample
s = 4 g + j, normal j of counter g * n + i under the key seed + salt. The seed is a number on the device: a recorded
CUDA graph that changes it draws new noise at every replay. Salts tell the tensors of a step apart; since they are added
to the seed, the seeds of two steps must lie further apart than the salts do, or be random.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ucb.kernels.triton.launch import MOST, launch, mask_of, size_of


def new_seed(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw a seed on the device, out of so many that those of two steps do not come near each other."""
    return torch.randint(1 << 62, (1,), device=device, generator=generator)


def check_noise(n: int, samples: int, seed: Tensor, like: Tensor) -> None:
    """Refuse a seed that a kernel cannot read, and more noise of n elements than there are counters."""
    if seed.dtype != torch.int64 or seed.numel() != 1 or seed.device != like.device:
        raise ValueError(
            f"the seed must be one int64 on {like.device}, not {seed.numel()} {seed.dtype} on {seed.device}"
        )
    if -(-samples // 4) * n > MOST:
        raise ValueError(f"{samples} samples of {n} elements need more than {MOST} counters")


def sample(mu: Tensor, rho: Tensor, keep: Tensor | None, seed: Tensor, salt: int, samples: int) -> Tensor:
    """Return w = mu + softplus(rho) * eps as [samples, ...]; a pruned weight is 0."""
    n = size_of(mu, rho)
    check_noise(n, samples, seed, mu)
    w = torch.empty((samples, *mu.shape), dtype=mu.dtype, device=mu.device)
    launch("sample_kernel", n, mu, rho, mask_of(keep, mu), seed, salt, w, n, samples=samples)
    return w


class LocalNoise(torch.autograd.Function):
    """Rows of mean + sqrt(variance) * eps, ``samples`` of them for every row; see ``local_noise``."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, seed: Tensor, salt: int, samples: int) -> Tensor:
        """Draw the rows; keep what makes the noise, not the noise."""
        n = size_of(mean, variance)
        check_noise(n, samples, seed, mean)
        rows, features = mean.shape
        out = torch.empty((rows * samples, features), dtype=mean.dtype, device=mean.device)
        launch("local_kernel", n, mean, variance, seed, salt, out, n, features, samples=samples)
        ctx.salt, ctx.samples = salt, samples
        ctx.save_for_backward(variance, seed)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Make the noise again: the mean's gradient is the sum of the rows', the variance's has eps in it."""
        variance, seed = ctx.saved_tensors
        grad = grad.contiguous()
        size_of(grad)
        by_mean = torch.empty_like(variance)
        # A frozen sigma and inputs that are pixels need none by the variance.
        by_variance = torch.empty_like(variance) if ctx.needs_input_grad[1] else None
        n = variance.numel()
        outputs = (by_mean, by_variance, n, variance.shape[-1])
        launch("local_backward_kernel", n, variance, seed, ctx.salt, grad, *outputs, samples=ctx.samples)
        return by_mean, by_variance, None, None, None


def local_noise(mean: Tensor, variance: Tensor, seed: Tensor, salt: int, samples: int) -> Tensor:
    """For [rows, features] return [rows * samples, features]: row r * samples + s is a draw of row r.

    Where the variance is 0 there is neither noise nor a gradient by it.
    """
    apply: Any = LocalNoise.apply
    return cast(Tensor, apply(mean, variance, seed, salt, samples))
