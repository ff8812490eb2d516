"""A Bayesian training step on a GPU, each loop over the weights one kernel. The tests have the same in PyTorch.

Nothing here waits for the device or reads a number back, so a CUDA graph can record it, once every kernel that it needs
has run before. Numbers such as a learning rate are recorded with it; the seed is read from the device at every replay.

Noise is made where it is used, and made again instead of kept. One counter of the Philox generator gives four normals.
Element i of a tensor of n elements gets, under sample s = 4 g + j, normal j of counter g * n + i under the key
seed + salt. The seed is a number on the device: a recorded CUDA graph that changes it draws new noise at every replay.
Salts tell the tensors of a step apart; since they are added to the seed, the seeds of two steps must lie further apart
than the salts do, or be random.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ucb.kernels.triton.launch import MOST, apply, blocks, launch, mask_of, size_of

Mixture = tuple[float, float, float]
"""k, b and c of f(w) = k w^2 + softplus(b + c w^2), c <= 0: the log of a scale mixture, but for a constant."""


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
    return apply(LocalNoise, mean, variance, seed, salt, samples)


def gradients(
    mu: Tensor,
    rho: Tensor,
    keep: Tensor | None,
    seed: Tensor,
    salt: int,
    grad_w: Tensor | None,
    grad_square: Tensor | None,
    prior_samples: int,
    mixture: Mixture | None,
    factor: float,
    entropy: float,
    out_mu: Tensor,
    out_rho: Tensor | None,
    add: tuple[bool, bool],
    valued: bool = True,
) -> Tensor:
    """Write, or where ``add`` says so add, the gradients by mu and rho of what ``sample`` drew; 0 for a pruned weight.

    ``grad_w`` [S, ...] is the gradient by every sample, ``grad_square`` that by sigma^2; factor * f(w) of the first
    ``prior_samples`` samples and -entropy * log sigma join the loss. A single prior sample without samples of the
    likelihood has noise of its own: ``one_normal_each`` of the kernels. Return sums over each block, [blocks, 2]: of
    f(w) and of log sigma or, unless these are ``valued``, of the squared gradients by mu and by rho. Nothing by rho is
    computed without ``out_rho``.
    """
    n = size_of(mu, rho, out_mu, out_rho, grad_square)
    samples = 0 if grad_w is None else _samples_in(grad_w, mu)
    if mixture is None:
        prior_samples, mixture = 0, (0.0, 0.0, 0.0)
    most = max(samples, prior_samples)
    check_noise(n, most, seed, mu)
    parts = torch.empty((blocks(n), 2), dtype=mu.dtype, device=mu.device)
    numbers = [float(x) for x in (*mixture, factor, entropy)]
    tensors = (mu, rho, mask_of(keep, mu), seed, salt, grad_w, grad_square, out_mu, out_rho, parts)
    counts = {"samples": samples, "prior_samples": prior_samples, "most": most}
    flags = {"add_mu": add[0], "add_rho": add[1], "valued": valued}
    launch("gradients_kernel", n, *tensors, n, *numbers, **counts, **flags)
    return parts


def _samples_in(grad_w: Tensor, mu: Tensor) -> int:
    fits = grad_w.shape[1:] == mu.shape and grad_w.dtype == mu.dtype and grad_w.device == mu.device
    if not fits or not grad_w.is_contiguous():
        raise ValueError(f"grad_w must be contiguous {mu.dtype} of [samples, *{tuple(mu.shape)}] on {mu.device}")
    return len(grad_w)


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
    factor: Tensor | None = None,
) -> None:
    """Step in place: mu by -lr * scale_mu * grad_mu, rho by -rho_lr * scale_rho * grad_rho. A pruned weight stays.

    ``factor``, one number on the device, shortens the gradients first.
    """
    tensors = (mu, rho, grad_mu, grad_rho, scale_mu, scale_rho)
    n = size_of(*tensors)
    launch("descend_kernel", n, *tensors, mask_of(keep, mu), factor, n, float(lr), float(rho_lr))
    _mark_as_written(mu, rho)


def natural(
    mu: Tensor,
    rho: Tensor,
    grad_mu: Tensor,
    signed: Tensor,
    curvature: Tensor,
    precision: Tensor,
    seen: Tensor,
    scale: Tensor | None,
    keep: Tensor | None,
    lr: float,
    temperature: float,
    size: int,
    beta: float,
    rows: int,
) -> None:
    """Take one step of :class:`ucb.optim.UCBNG` in place, on mu, rho and the curvature.

    ``signed`` is what :func:`ucb.bayes.curvature.signed_gradients` found in so many rows, ``seen`` the number of steps
    with this one. A pruned weight's mu and rho stay; its curvature is stepped with the others'.
    """
    tensors = (mu, rho, grad_mu, signed, curvature, precision, scale)
    n = size_of(*tensors)
    if seen.numel() != 1 or seen.dtype != mu.dtype:
        raise ValueError(f"seen must be one {mu.dtype}, not {tuple(seen.shape)} {seen.dtype}")
    numbers = (float(lr), temperature / size, float(beta), math.log1p(-beta), 1 / rows)
    launch("natural_kernel", n, *tensors, seen, mask_of(keep, mu), n, *numbers)
    _mark_as_written(mu, rho, curvature)


class Later:
    """Keeps a gradient by sigma^2 until ``gradients``, which walks over all weights anyway, takes it on to rho."""

    def __init__(self) -> None:
        self._grad: Tensor | None = None
        self._stream: torch.cuda.Stream | None = None

    def put(self, grad: Tensor) -> None:
        """Keep a gradient, and on which stream it is under way."""
        self._grad = grad
        self._stream = torch.cuda.current_stream(grad.device) if grad.is_cuda else None

    def take(self) -> Tensor | None:
        """Return what is kept, to be used on the present stream."""
        if self._grad is not None and self._stream is not None:
            now = torch.cuda.current_stream(self._grad.device)
            now.wait_stream(self._stream)
            self._grad.record_stream(now)
        return self._grad


class SigmaSquared(torch.autograd.Function):
    """softplus(rho)^2, and 0 where pruned."""

    @staticmethod
    def forward(ctx: Any, rho: Tensor, keep: Tensor | None, later: Later | None) -> Tensor:
        """Square sigma."""
        ctx.later = later
        ctx.save_for_backward(rho, keep)
        return _squared(rho, keep, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return grad * 2 sigma * sigmoid(rho), or leave it for later."""
        rho, keep = ctx.saved_tensors
        grad = grad.contiguous()
        if ctx.later is None:
            return _squared(rho, keep, grad), None, None
        ctx.later.put(grad)
        return None, None, None


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
        by_mu, by_rho = torch.empty_like(mu), torch.empty_like(rho) if ctx.needs_input_grad[1] else None
        new = (by_mu, by_rho, (False, False))
        gradients(mu, rho, keep, seed, ctx.salt, grad.contiguous(), None, 0, None, 0.0, 0.0, *new)
        return by_mu, by_rho, None, None, None, None


def sigma_squared(rho: Tensor, keep: Tensor | None, later: Later | None = None) -> Tensor:
    """Return softplus(rho)^2, and 0 where pruned. With ``later`` that keeps the gradient, and rho gets none."""
    return apply(SigmaSquared, rho, keep, later)


def sample_weights(mu: Tensor, rho: Tensor, keep: Tensor | None, seed: Tensor, salt: int, samples: int) -> Tensor:
    """Return [samples, ...] weights that pass their gradients on to mu and rho."""
    return apply(SampleWeights, mu, rho, keep, seed, salt, samples)


def _mark_as_written(*tensors: Tensor) -> None:
    """Tell autograd, which does not see a kernel write, that what it has kept of these tensors is out of date."""
    for t in tensors:
        increment_version(t)
