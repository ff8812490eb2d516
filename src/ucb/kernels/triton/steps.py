"""Small kernels of a training step: the batch whose turn it is, the NLL of classes, clipping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.kernels.triton.launch import BLOCK, WARPS, apply, module_of, start, supports

LONGEST = 1024
"""Elements that one program copies."""


def take_batch(x: Tensor, y: Tensor, order: Tensor, turn: Tensor, batch_size: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return ``rows`` inputs and labels: those of batch number ``turn`` (a tensor of one element) in an order.

    Where the channels of ``x`` lie side by side (channels_last), those of the batch do so too.
    """
    is_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    lying = x.permute(0, 2, 3, 1) if is_last else x
    if supports(lying) and y.dim() == 1:
        inputs, labels = lying.new_empty(rows, *lying.shape[1:]), y.new_empty(rows)
        features = lying[0].numel()
        block = min(LONGEST, 1 << (features - 1).bit_length())
        tensors = (lying, y, order, turn, inputs, labels)
        _start("take_kernel", (rows, -(-features // block)), *tensors, batch_size, features, block=block)
    else:
        some = order.index_select(0, turn * batch_size + torch.arange(rows, device=turn.device))
        inputs, labels = lying.index_select(0, some), y.index_select(0, some)
    return inputs.permute(0, 3, 1, 2) if is_last else inputs, labels


def note_loss(loss: Tensor, losses: Tensor, turn: Tensor) -> None:
    """Write a batch's loss to its place among ``losses``, and pass the turn on."""
    if supports(loss, losses):
        _start("note_kernel", (1,), loss, losses, turn)
        return
    losses.index_copy_(0, turn, loss.view(1).float())
    turn.add_(1)


def _start(kernel: str, grid: tuple[int, ...], *args: Tensor | float, **sizes: int) -> None:
    start(module_of("steps_source"), kernel, grid, *args, **sizes, num_warps=WARPS)


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
        tensors = (logits, target.contiguous(), losses, grad)
        _start("cross_entropy_kernel", (-(-rows // block),), *tensors, rows, classes, width=width, block=block)
        ctx.save_for_backward(grad)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what forward has found."""
        return ctx.saved_tensors[0] * grad, None


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean NLL of class indices ``target`` under ``logits`` [rows, classes]."""
    if logits.dim() != 2 or not 0 < logits.shape[1] <= MOST_CLASSES or len(logits) == 0 or not supports(logits):
        return F.cross_entropy(logits, target)
    return apply(_CrossEntropy, logits, target)


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
    if not moving or not supports(*(p.grad for p in moving if p.grad is not None)):
        return None
    sums = [known[p] for p in moving if p in known]
    others = [p.grad for p in moving if p not in known and p.grad is not None]
    if others:
        sums.append(torch.stack(torch._foreach_norm(others)).square())
    squares = torch.cat(sums) if len(sums) > 1 else sums[0].contiguous()
    count, factor = len(squares), squares.new_empty(())
    width = min(WIDTH, 1 << (count - 1).bit_length())
    _start("clip_kernel", (1,), squares, factor, count, float(most), width=width)
    return factor
