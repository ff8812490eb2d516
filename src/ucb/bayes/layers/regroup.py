"""Samples in the rows, or side by side in the channels of each pixel: the two layouts of sampled convolutions on a GPU.

A grouped convolution wants [B, S*C, H, W], the rest of a net [B*S, C, H, W]; both with the channels of one pixel side
by side (channels_last), which is how a GPU convolves fastest. In memory that is [B, H*W, S, C] and [B, S, H*W, C].
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def samples_by_pixel(x: Tensor, samples: int) -> Tensor:
    """Return rows [B*S, C, H, W] as [B, S*C, H, W], channels_last."""
    rows, channels, height, width = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(rows // samples, samples, height * width, channels)
    return middle_swapped(pixels).view(rows // samples, height, width, -1).permute(0, 3, 1, 2)


def rows_by_pixel(x: Tensor, samples: int) -> Tensor:
    """Return [B, S*C, H, W] as rows [B*S, C, H, W], channels_last."""
    rows, channels, height, width = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(rows, height * width, samples, channels // samples)
    return middle_swapped(pixels).view(rows * samples, height, width, -1).permute(0, 3, 1, 2)


def middle_swapped(x: Tensor) -> Tensor:
    """Return [a, b, c, d] as [a, c, b, d], contiguous."""
    apply: Any = _MiddleSwapped.apply
    return cast(Tensor, apply(x))


class _MiddleSwapped(torch.autograd.Function):
    """The way back is the same way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Copy."""
        a, b, c, d = x.shape
        swapped = x.new_empty(a, c, b, d)
        source, target = (_in_large_pieces(t) for t in (x.contiguous(), swapped))
        target.copy_(source.transpose(1, 2))
        return swapped

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Copy back."""
        return middle_swapped(grad)


def _in_large_pieces(x: Tensor) -> Tensor:
    """Return the same memory as numbers of 16 bytes where it can be had in such.

    PyTorch copies what is permuted number by number; in large ones that takes half the time.
    """
    piece = torch.complex128
    fits = x.shape[-1] * x.element_size() % piece.itemsize == 0 and x.data_ptr() % piece.itemsize == 0
    return x.view(piece) if fits and x.numel() else x
