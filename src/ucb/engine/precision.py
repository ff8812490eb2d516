"""How precisely a GPU multiplies: results stay in single precision, products of matrices need not be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bf16"]


@contextmanager
def multiplying_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Multiply matrices and convolve in this precision, for as long as the block lasts; a CPU knows only float32.

    ``tf32`` keeps 10 bits of each factor's mantissa, ``bf16`` keeps 7 and halves the memory of activations. Weights,
    gradients, noise and sums stay in float32.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    try:
        # Casts are not kept: weights change from step to step inside this one block.
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
