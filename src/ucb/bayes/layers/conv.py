"""One- and two-dimensional convolutions."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes.layers.base import Affine, Weights, rows_by_pixel, samples_by_pixel
from ucb.bayes.passes import Pass
from ucb.bayes.posterior import Gaussian


class BayesConv(Affine):
    """A one- or two-dimensional convolution with Gaussian weights."""

    def __init__(self, weight: Gaussian, bias: Gaussian | None, *, like: nn.Conv1d | nn.Conv2d) -> None:
        super().__init__(weight, bias)
        has_zeros = like.padding_mode == "zeros"
        self.stride, self.dilation, self.groups = like.stride, like.dilation, like.groups
        self.padding = like.padding if has_zeros else (0,) * len(like.stride)
        self.wrap = None if has_zeros else (like.padding_mode, tuple(like._reversed_padding_repeated_twice))
        """A padding other than zeros: its mode, and its widths as ``F.pad`` takes them."""

    def transform(self, x: Tensor, weights: Weights) -> Tensor:
        """Apply one set of filters."""
        return self._convolve(x, weights["weight"], weights.get("bias"), self.groups)

    def transform_stacked(self, x: Tensor, weights: Weights, p: Pass) -> Tensor:
        """Apply S sets of filters with one grouped convolution, or a wide one where they share the input."""
        weight, bias = weights["weight"].flatten(0, 1), weights.get("bias")
        bias = None if bias is None else bias.flatten()
        by_pixel = x.is_cuda and x.dim() == 4
        if not p.is_expanded(x) and self.groups == 1:
            out = self._convolve(x, weight, bias, 1)
        elif by_pixel:
            out = self._convolve(samples_by_pixel(p.expand(x), p.samples), weight, bias, p.samples * self.groups)
        else:
            side_by_side = p.expand(x).reshape(p.rows, p.samples * x.shape[1], *x.shape[2:])
            out = self._convolve(side_by_side, weight, bias, p.samples * self.groups)
        if by_pixel:
            return rows_by_pixel(out, p.samples)
        return out.reshape(p.rows * p.samples, -1, *out.shape[2:])

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        if self.wrap is not None:
            x = F.pad(x, self.wrap[1], mode=self.wrap[0])
        convolve = F.conv1d if weight.dim() == 3 else F.conv2d
        return convolve(x, weight, bias, self.stride, self.padding, self.dilation, groups)

    def extra_repr(self) -> str:
        """Say what an ordinary convolution says."""
        return f"stride={self.stride}, padding={self.padding}, dilation={self.dilation}, groups={self.groups}"
