# mypy: ignore-errors
"""Gathering a batch, in Triton's language. Import this module only where Triton is installed."""

import triton
import triton.language as tl


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
