"""The batch whose turn it is, and the note of its loss, by a counter on the device: on a GPU one kernel each.

A step that finds its place by itself needs nothing from outside, so that a CUDA graph can repeat it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ucb.bayes.kernels.launch import WARPS, module_of, serves, start

LONGEST = 1024
"""Elements that one program copies."""


def take(x: Tensor, y: Tensor, order: Tensor, turn: Tensor, batch_size: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return ``rows`` inputs and labels: those of batch number ``turn`` (a tensor of one element) in an order.

    Where the channels of ``x`` lie side by side (channels_last), those of the batch do so too.
    """
    is_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    lying = x.permute(0, 2, 3, 1) if is_last else x
    if serves(lying) and y.dim() == 1:
        inputs, labels = lying.new_empty(rows, *lying.shape[1:]), y.new_empty(rows)
        features = lying[0].numel()
        block = min(LONGEST, 1 << (features - 1).bit_length())
        tensors = (lying, y, order, turn, inputs, labels)
        _start("take_kernel", (rows, -(-features // block)), *tensors, batch_size, features, block=block)
    else:
        some = order.index_select(0, turn * batch_size + torch.arange(rows, device=turn.device))
        inputs, labels = lying.index_select(0, some), y.index_select(0, some)
    return inputs.permute(0, 3, 1, 2) if is_last else inputs, labels


def note(loss: Tensor, losses: Tensor, turn: Tensor) -> None:
    """Write a batch's loss to its place among ``losses``, and pass the turn on."""
    if serves(loss, losses):
        _start("note_kernel", (1,), loss, losses, turn)
        return
    losses.index_copy_(0, turn, loss.view(1).float())
    turn.add_(1)


def _start(kernel: str, grid: tuple[int, ...], *args: Tensor | int, **sizes: int) -> None:
    start(module_of("batches_source"), kernel, grid, *args, **sizes, num_warps=WARPS)
