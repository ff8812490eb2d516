"""A bound on the norm of all gradients together, on a GPU with as few launches as it takes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ucb.bayes.kernels.launch import module_of, serves, start

WIDTH = 4096
"""Sums that one program reads at a time."""

Measured = dict[nn.Parameter, Tensor]
"""Sums of squares of gradients that whoever wrote them has found on the way, run after run."""


def clip_gradients(parameters: Iterable[nn.Parameter], most: float) -> None:
    """Shorten the gradient if it is longer than ``most``, as ``torch.nn.utils.clip_grad_norm_`` does."""
    parameters = list(parameters)
    factor = clip_factor(parameters, most)
    if factor is None:
        nn.utils.clip_grad_norm_(parameters, most)
        return
    torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], factor)


def clip_factor(parameters: Iterable[nn.Parameter], most: float, measured: Measured | None = None) -> Tensor | None:
    """Return what shortens all gradients together to ``most``, at most 1; None where PyTorch has to do it."""
    factor = _factor(parameters, most, 1, measured)
    return None if factor is None else factor[0]


def clip_factor_of_runs(
    parameters: Iterable[nn.Parameter], most: float, runs: int, measured: Measured | None = None
) -> Tensor:
    """Return the same for each run; the first axis of every gradient counts them."""
    factor = _factor(parameters, most, runs, measured)
    if factor is None:
        raise RuntimeError("gradients of several runs are shortened by kernels on a GPU")
    return factor


@torch.no_grad()
def shorten_runs(parameters: Iterable[nn.Parameter], factor: Tensor) -> None:
    """Multiply the gradient of each run by its factor."""
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(for_each_run(factor, p))


def for_each_run(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number for each run, to be multiplied with a tensor whose first axis counts them."""
    return numbers.view(-1, *[1] * (like.dim() - 1))


def _factor(parameters: Iterable[nn.Parameter], most: float, runs: int, measured: Measured | None) -> Tensor | None:
    known = {} if measured is None else measured
    moving = [p for p in parameters if p.grad is not None]
    if not moving or not serves(*(p.grad for p in moving if p.grad is not None)):
        return None
    sums = [known[p].view(runs, -1) for p in moving if p in known]
    others = [p.grad for p in moving if p not in known and p.grad is not None]
    if others:
        parts = others if runs == 1 else [gradient[run] for run in range(runs) for gradient in others]
        sums.append(torch.stack(torch._foreach_norm(parts)).square().view(runs, -1))
    return factor_for(torch.cat(sums, 1) if len(sums) > 1 else sums[0], most)


def factor_for(squares: Tensor, most: float) -> Tensor:
    """Return what shortens each run's vector to ``most``, at most 1; ``squares`` [runs, sums] add up to its square."""
    runs, count = squares.shape
    factor, width = squares.new_empty(runs), min(WIDTH, 1 << (count - 1).bit_length())
    tensors = (squares.contiguous(), factor)
    start(module_of("step_source"), "clip_kernel", (runs,), *tensors, count, float(most), width=width)
    return factor
