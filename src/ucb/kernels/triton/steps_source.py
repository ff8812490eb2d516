"""Triton source of the small kernels of a training step."""

from __future__ import annotations

import triton
import triton.language as tl

# mypy: ignore-errors


@triton.jit
def take_kernel(x, y, order, turn, inputs, labels, batch_size, features, block: tl.constexpr):
    """Copy a piece of one example, and in the first piece its label."""
    row = tl.program_id(0)
    which = tl.load(order + tl.load(turn) * batch_size + row)
    at = tl.program_id(1) * block + tl.arange(0, block)
    inside = at < features
    tl.store(inputs + row * features + at, tl.load(x + which * features + at, mask=inside), mask=inside)
    if tl.program_id(1) == 0:
        tl.store(labels + row, tl.load(y + which))


@triton.jit
def note_kernel(loss, losses, turn):
    """Write the loss of this turn, and pass the turn on."""
    now = tl.load(turn)
    tl.store(losses + now, tl.load(loss))
    tl.store(turn, now + 1)


@triton.jit
def cross_entropy_kernel(logits, target, losses, grad, rows, classes, width: tl.constexpr, block: tl.constexpr):
    """Write every row's share of the mean NLL, and its gradient by the logits."""
    row = tl.program_id(0) * block + tl.arange(0, block)
    column = tl.arange(0, width)
    is_row = row < rows
    inside = is_row[:, None] & (column < classes)[None, :]
    at = row[:, None] * classes + column[None, :]
    x = tl.load(logits + at, mask=inside, other=-1e30)
    is_right = column[None, :] == tl.load(target + row, mask=is_row, other=0)[:, None]
    top = tl.max(x, axis=1)
    e = tl.exp(x - top[:, None])
    total = tl.sum(e, axis=1)
    score = tl.sum(tl.where(is_right, x, 0.0), axis=1)
    tl.store(losses + row, (top + tl.log(total) - score) / rows, mask=is_row)
    tl.store(grad + at, (e / total[:, None] - tl.where(is_right, 1.0, 0.0)) / rows, mask=inside)


@triton.jit
def clip_kernel(squares, factor, count, most, width: tl.constexpr):
    """Write what shortens a vector to ``most``, at most 1, given ``count`` sums of squares of it."""
    sums = tl.zeros([width], dtype=tl.float32)
    for start in range(0, count, width):
        at = start + tl.arange(0, width)
        sums += tl.load(squares + at, mask=at < count, other=0.0)
    tl.store(factor, tl.minimum(most / (tl.sqrt(tl.sum(sums, axis=0)) + 1e-6), 1.0))
