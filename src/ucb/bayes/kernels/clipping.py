"""A bound on the norm of all gradients together, on a GPU with as few launches as it takes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ucb.bayes.kernels.launch import module_of, serves, start

WIDTH = 4096
"""Sums that one program reads at a time."""

Measured = dict[nn.Parameter, Tensor]
"""Sums of squares of gradients that whoever wrote them has found on the way."""


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
    known = {} if measured is None else measured
    moving = [p for p in parameters if p.grad is not None]
    if not moving or not serves(*(p.grad for p in moving if p.grad is not None)):
        return None
    sums = [known[p] for p in moving if p in known]
    others = [p.grad for p in moving if p not in known and p.grad is not None]
    if others:
        sums.append(torch.stack(torch._foreach_norm(others)).square())
    squares = torch.cat(sums) if len(sums) > 1 else sums[0].contiguous()
    count, factor = len(squares), squares.new_empty(())
    width = min(WIDTH, 1 << (count - 1).bit_length())
    start(module_of("step_source"), "clip_kernel", (1,), squares, factor, count, float(most), width=width)
    return factor
