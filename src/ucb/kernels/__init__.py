"""The three loops over every weight that a sampled training step needs, in PyTorch and, on a CPU, compiled.

Both forms draw from the same distribution but not the same numbers: a run is repeatable with either, not across them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ucb.kernels.cpu import load_library, status

__all__ = ["accumulate", "add_mixture_score", "draw", "status", "sum_log", "sum_squares"]

PIECE = 1 << 16
"""How many numbers PyTorch works on at a time, so that what is made of them stays in a core's own cache."""

SHARE = 1 << 17
"""A thread is worth its start from this many numbers on; a multiple of the C code's block."""

LARGEST_ODDS = 80.0
"""Where exp() of the mixture's odds would overflow in the C code."""

STEEPEST = -1e30
"""The C code's smallest sigmoid, 1e-38, must still be nothing beside the wide component: c * 1e-38 against k."""

# The C library hands memory back to the system after every large tensor, and taking it again costs more than most loops
# here. It learns to keep it from the first large block that is freed; this one is never touched, so it costs nothing.
torch.empty(31 << 20, dtype=torch.uint8)


def draw(mean: Tensor, sigma: Tensor, eps: Tensor, w: Tensor, generator: torch.Generator | None) -> None:
    """Fill ``eps`` with standard normal noise and ``w`` with mean + sigma * eps."""
    lib = load_library()
    if lib is None or not _fits(mean, sigma, eps, w):
        eps.normal_(generator=generator)
        torch.addcmul(mean, sigma, eps, out=w)
        return
    seed = int(torch.randint(1 << 62, (), generator=generator))
    pointers = [t.data_ptr() for t in (mean, sigma, eps, w)]
    _run_in_parallel(w.numel(), lambda begin, end: lib.ucb_draw(*pointers, begin, end, seed))


def accumulate(grad: Tensor, eps: Tensor, grad_mean: Tensor, grad_sigma: Tensor) -> None:
    """Add ``grad`` to ``grad_mean`` and grad * eps to ``grad_sigma``."""
    lib = load_library()
    if lib is None or not _fits(grad, eps, grad_mean, grad_sigma):
        grad_mean.add_(grad)
        grad_sigma.addcmul_(grad, eps)
        return
    pointers = [t.data_ptr() for t in (grad, eps, grad_mean, grad_sigma)]
    _run_in_parallel(grad.numel(), lambda begin, end: lib.ucb_accumulate(*pointers, begin, end))


def add_mixture_score(w: Tensor, grad: Tensor, k: float, b: float, c: float, factor: float) -> Tensor:
    """For f = k w^2 + softplus(b + c w^2), c <= 0: add factor * df/dw to ``grad``; return the sum of f."""
    lib = load_library()
    if lib is not None and _fits(w, grad) and b <= LARGEST_ODDS and c >= STEEPEST * abs(k):
        pointers = [w.data_ptr(), grad.data_ptr()]
        parts = _run_in_parallel(w.numel(), lambda begin, end: lib.ucb_mixture(*pointers, begin, end, k, b, c, factor))
        return w.new_tensor(sum(parts))
    # Below -60, or where c * sigmoid() is nothing beside k, subnormal numbers would only make the work slow.
    smallest = min(-60.0, math.log(1e-9 * k / c)) if c < 0 else -60.0
    totals, odds_at_0 = [], w.new_full((), b)  # filled there: a recorded CUDA graph may copy nothing
    for piece, out in _split(w, grad):
        odds = torch.addcmul(odds_at_0, piece, piece, value=c).clamp_min_(smallest)
        # softplus(x) = -log sigmoid(-x) takes half the time, where sigmoid() does not underflow
        totals.append(F.softplus(odds).sum() if b > LARGEST_ODDS else -odds.neg().sigmoid_().log_().sum())
        out.addcmul_(odds.sigmoid_().mul_(2 * c * factor).add_(2 * k * factor), piece)
    return k * sum_squares(w) + torch.stack(totals).sum()


def sum_squares(x: Tensor) -> Tensor:
    """Return the sum of x^2 without a second tensor of its size."""
    norm: Tensor = torch.linalg.vector_norm(x)
    return norm.square()


def sum_log(x: Tensor) -> Tensor:
    """Return the sum of log x without a second tensor of its size."""
    return torch.stack([piece.log().sum() for (piece,) in _split(x)]).sum()


def _split(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Cut tensors of one shape for a CPU's cache; a GPU prefers them whole, and scattered memory cannot be cut."""
    if any(t.is_cuda or not t.is_contiguous() for t in tensors):
        return [tensors]
    return zip(*(torch.split(t.view(-1), PIECE) for t in tensors), strict=True)


def _fits(*tensors: Tensor) -> bool:
    """Say whether the C code can work on these tensors."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" and t.is_contiguous() for t in tensors)


def _run_in_parallel(size: int, work: Callable[[int, int], float]) -> list[float]:
    """Share ``work(begin, end)`` over as many threads as PyTorch uses. C code runs without Python's lock."""
    threads = max(1, min(torch.get_num_threads(), size // SHARE))
    if threads == 1:
        return [work(0, size)]
    cuts = [i * (size // SHARE) // threads * SHARE for i in range(threads)] + [size]
    return list(_pool(threads).map(work, cuts[:-1], cuts[1:]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="ucb-kernel")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


SMALLEST_RHO = -40.0
"""Below it softplus(rho) is exp(rho) to the last digit, in double precision too; far below it underflows."""


def inverse_softplus(sigma: Tensor) -> Tensor:
    """Return rho with softplus(rho) = sigma, without overflow for large sigma."""
    return sigma + torch.log(-torch.expm1(-sigma))


def log_softplus(rho: Tensor) -> Tensor:
    """Return log softplus(rho), which is rho itself where exp(rho) would underflow."""
    return torch.where(rho > SMALLEST_RHO, F.softplus(rho.clamp_min(SMALLEST_RHO)).log(), rho)
