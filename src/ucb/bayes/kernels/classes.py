"""The mean NLL of classes on a GPU: value and gradient in one kernel, where PyTorch's sums run in a single block."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ucb.bayes.kernels.launch import BLOCK, WARPS, module_of, serves, start

MOST_CLASSES = 1024
"""A row must fit into one program."""


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        """Return the mean NLL; the gradient is a by-product, and waits for backward."""
        rows, classes = logits.shape
        losses, grad = logits.new_empty(rows), torch.empty_like(logits)
        width = 1 << (classes - 1).bit_length()
        block = max(1, BLOCK // width)
        grid, sizes = (-(-rows // block),), {"width": width, "block": block, "num_warps": WARPS}
        source = module_of("step_source")
        tensors = (logits, target.contiguous(), losses, grad)
        start(source, "cross_entropy_kernel", grid, *tensors, rows, classes, **sizes)
        ctx.save_for_backward(grad)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what forward has found."""
        return ctx.saved_tensors[0] * grad, None


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean NLL of class indices ``target`` under ``logits`` [rows, classes]."""
    if logits.dim() != 2 or not 0 < logits.shape[1] <= MOST_CLASSES or len(logits) == 0 or not serves(logits):
        return F.cross_entropy(logits, target)
    apply: Any = _CrossEntropy.apply
    return cast(Tensor, apply(logits, target))
