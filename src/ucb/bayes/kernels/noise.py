"""Noise that is made where it is used, and made again instead of kept.

One counter of the Philox generator gives four normals. Element i of a tensor of n elements gets, under sample
s = 4 g + j, normal j of counter g * n + i under the key seed + salt. The seed is a number on the device: a recorded
CUDA graph that changes it draws new noise at every replay. Salts tell the tensors of a step apart; since they are added
to the seed, the seeds of two steps must lie further apart than the salts do, or be random.

Several seeds are those of several runs, which the first axis of every tensor then counts: each has the noise of its own
seed, as if it were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ucb.bayes.kernels.launch import MOST, launch, mask_of, share_of, size_of


def check_noise(n: int, samples: int, seed: Tensor, like: Tensor) -> None:
    """Refuse seeds that a kernel cannot read, and more noise of n elements than there are counters."""
    fits = seed.numel() == 1 or (seed.dim() == 1 and len(seed) == len(like) > 0 and seed.is_contiguous())
    if seed.dtype != torch.int64 or not fits or seed.device != like.device:
        raise ValueError(
            f"the seed must be one int64 on {like.device}, or one for each run, not {seed.numel()} {seed.dtype} on "
            f"{seed.device}"
        )
    if -(-samples // 4) * n > MOST:
        raise ValueError(f"{samples} samples of {n} elements need more than {MOST} counters")


def sample(mu: Tensor, rho: Tensor, keep: Tensor | None, seed: Tensor, salt: int, samples: int) -> Tensor:
    """Return w = mu + softplus(rho) * eps as [samples, ...], after the axis of runs; a pruned weight is 0."""
    runs = seed.numel()
    n, stride = share_of(size_of(mu, rho), runs)
    check_noise(n, samples, seed, mu)
    shape = (samples, *mu.shape) if runs == 1 else (runs, samples, *mu.shape[1:])
    w = torch.empty(shape, dtype=mu.dtype, device=mu.device)
    launch("sample_kernel", n, mu, rho, mask_of(keep, mu), seed, salt, w, n, stride, runs=runs, samples=samples)
    return w


class LocalNoise(torch.autograd.Function):
    """Rows of mean + sqrt(variance) * eps, ``samples`` of them for every row; see ``local_noise``."""

    @staticmethod
    def forward(mean: Tensor, variance: Tensor, seed: Tensor, salt: int, samples: int) -> Tensor:
        """Draw the rows."""
        runs = seed.numel()
        n, stride = share_of(size_of(mean, variance), runs)
        check_noise(n, samples, seed, mean)
        *leading, rows, features = mean.shape
        out = torch.empty((*leading, rows * samples, features), dtype=mean.dtype, device=mean.device)
        sizes = (n, stride, features)
        launch("local_kernel", n, mean, variance, seed, salt, out, *sizes, runs=runs, samples=samples)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what makes the noise, not the noise."""
        _, variance, seed, ctx.salt, ctx.samples = inputs
        ctx.save_for_backward(variance, seed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Make the noise again: the mean's gradient is the sum of the rows', the variance's has eps in it."""
        variance, seed = ctx.saved_tensors
        grad = grad.contiguous()
        size_of(grad)
        by_mean = torch.empty_like(variance)
        # A frozen sigma and inputs that are pixels need none by the variance.
        by_variance = torch.empty_like(variance) if ctx.needs_input_grad[1] else None
        runs = seed.numel()
        n, stride = share_of(variance.numel(), runs)
        outputs = (by_mean, by_variance, n, stride, variance.shape[-1])
        launch("local_backward_kernel", n, variance, seed, ctx.salt, grad, *outputs, runs=runs, samples=ctx.samples)
        return by_mean, by_variance, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        """Draw the rows of all runs at once."""
        return cast(Any, LocalNoise).apply(*of_runs(info.batch_size, inputs, in_dims)), 0


def of_runs(runs: int, inputs: Sequence[Any], axes: Sequence[int | None]) -> list[Any]:
    """Return what ``torch.vmap`` gives to a kernel with the axis of runs in front of every tensor."""
    return [
        x if not isinstance(x, Tensor) else x.expand(runs, *x.shape) if axis is None else x.movedim(axis, 0)
        for x, axis in zip(inputs, axes, strict=True)
    ]


def local_noise(mean: Tensor, variance: Tensor, seed: Tensor, salt: int, samples: int) -> Tensor:
    """For [rows, features] return [rows * samples, features]: row r * samples + s is a draw of row r.

    Where the variance is 0 there is neither noise nor a gradient by it.
    """
    apply: Any = LocalNoise.apply
    return cast(Tensor, apply(mean, variance, seed, salt, samples))
