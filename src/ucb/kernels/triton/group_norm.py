"""Group normalisation on a GPU of pixels whose channels lie side by side (channels_last), scaled and shifted by row.

PyTorch turns such a tensor round to normalise it and back again, and scales it by other kernels. Nothing here waits for
the device, so a CUDA graph can record it, once the kernels have run before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ucb.kernels.triton.launch import MOST, apply, available, module_of, start

TILE = 8192
"""Most elements that a program holds at a time. A group that fits is read once."""

PER_WARP = 1024
"""Elements of one warp. With fewer, addresses take so many registers that less of x fits a multiprocessor at a time."""


PRECISIONS = (torch.float32, torch.bfloat16)


class _Shape(NamedTuple):
    """How programs divide the work: one of them for each group of each row."""

    rows: int
    channels: int
    pixels: int
    groups: int
    samples: int

    def start(self, kernel: str, *args: Tensor | float | None) -> None:
        """Start ``kernel`` on the device of the first argument."""
        per_group = self.channels // self.groups
        width = _power_of_two(per_group)
        block = min(_power_of_two(self.pixels), max(1, TILE // width))
        constants = {"per_group": per_group, "width": width, "whole": self.pixels <= block, "block": block}
        warps = max(1, block * width // PER_WARP)
        source, grid = module_of("group_norm_source"), (self.rows * self.groups,)
        start(source, kernel, grid, *args, **constants, num_warps=warps)


def _power_of_two(n: int) -> int:
    """Return the smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def supports(x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Say whether ``group_norm`` can work on these tensors, here."""
    return available(x.device) and _misfit(x, groups, weight, bias) is None


def _misfit(x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None) -> str | None:
    """Return what the kernels cannot do with these tensors, or None."""
    by_pixel = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if x.dtype not in PRECISIONS or not by_pixel or x.numel() == 0:
        found = f"{x.dtype} {tuple(x.shape)}"
        return f"x must be float32 or bfloat16 [rows, channels, height, width], channels_last, not {found}"
    rows, channels = x.shape[:2]
    if groups < 1 or channels % groups or _power_of_two(channels // groups) > TILE:
        return f"{channels} channels do not make {groups} groups of at most {TILE}"
    if x[0].numel() > MOST // 2 or rows * groups > MOST:  # a last tile may be half empty
        return f"{tuple(x.shape)} is more than one kernel can number"
    given = [t for t in (weight, bias) if t is not None]
    for t in given:
        fits = t.dim() == 2 and t.shape[1] == channels and t.shape == given[0].shape and t.dtype == torch.float32
        if not fits or not t.is_contiguous() or t.device != x.device or len(t) == 0 or rows % len(t):
            return f"{rows} rows of {channels} channels cannot use {t.dtype} {tuple(t.shape)} on {t.device}"
    return None


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Tensor:
        """Normalise; what backward keeps beside its inputs is two numbers for each group."""
        given = weight if weight is not None else bias
        rows, channels, height, width = x.shape
        shape = _Shape(rows, channels, height * width, groups, 1 if given is None else len(given))
        y = torch.empty_like(x, memory_format=torch.channels_last)
        means, rstds = x.new_empty(2, rows, groups, dtype=torch.float32).unbind()
        numbers = (shape.pixels, groups, shape.samples, float(eps))
        shape.start("group_norm_kernel", x, weight, bias, y, means, rstds, *numbers)
        ctx.save_for_backward(x, weight, means, rstds)
        ctx.shape = shape
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients; those by weight and bias are summed over the rows of a sample."""
        x, weight, means, rstds = ctx.saved_tensors
        shape: _Shape = ctx.shape
        by_x = torch.empty_like(x, memory_format=torch.channels_last)
        _, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        by_row = means.new_empty(2, shape.rows, shape.channels) if wants_weight or wants_bias else None
        shares = (None, None) if by_row is None else by_row.unbind()
        grad = grad.contiguous(memory_format=torch.channels_last)
        numbers = (shape.pixels, shape.groups, shape.samples)
        shape.start("group_norm_backward_kernel", x, grad, weight, means, rstds, by_x, *shares, *numbers)
        if by_row is None:
            return by_x, None, None, None, None
        by_weight, by_bias = by_row.view(2, -1, shape.samples, shape.channels).sum(1).unbind()
        return by_x, by_weight if wants_weight else None, by_bias if wants_bias else None, None, None


def group_norm(x: Tensor, groups: int, eps: float, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Normalise each row's channels in groups; row r is scaled and shifted by r % S of ``weight`` and ``bias`` [S, C].

    ``x`` [rows, C, H, W] is channels_last, in one of ``PRECISIONS``, and so is the result; all sums are in float32.
    """
    misfit = _misfit(x, groups, weight, bias)
    if misfit is not None:
        raise ValueError(misfit)
    return apply(_GroupNorm, x, weight, bias, groups, eps)
