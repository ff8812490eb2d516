"""Linear and convolutional layers, under all three estimators."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes.kernels import fused
from ucb.bayes.layers.base import BayesLayer, Weights
from ucb.bayes.passes import Pass
from ucb.bayes.posterior import Gaussian


class _Affine(BayesLayer):
    """y = W x + b: what Linear and the convolutions have in common."""

    channel_axis = 1
    """Where the input and output channels stand: axis 1, or the last."""

    def __init__(self, weight: Gaussian, bias: Gaussian | None = None) -> None:
        super().__init__(weight=weight, bias=bias)

    def perturb(self, x: Tensor, p: Pass) -> Tensor:
        """Flipout (Wen et al. 2018): a perturbation of the weights, flipped by random signs in every row.

        Row r sees W_r = mu + (sigma * eps) * (out_r in_r^T). Since eps is symmetric, W_r is distributed as q(w)
        exactly, and rows are uncorrelated; the signs can stand outside the product, so it stays one operation.
        """
        weight, bias = self._claim(p)
        rows = p.rows * p.samples
        mean = self.transform(x, {"weight": weight.mean, **({} if bias is None else {"bias": bias.mean})})
        flipped = p.expand(x) * self._per_channel(p.signs((rows, self._channels(x)), x), x)
        # Every sample has a perturbation of its own: samples that shared one would not average out.
        shape = (p.samples, *weight.mu.shape) if p.samples > 1 else tuple(weight.mu.shape)
        shift = {"weight": weight.sigma * p.noise(shape, weight.mu)}
        noise = self.transform_stacked(flipped, shift, p) if p.samples > 1 else self.transform(flipped, shift)
        noise = noise * self._per_channel(p.signs((rows, weight.mu.shape[0]), x), noise)
        if bias is not None:
            noise = noise + self._per_channel(bias.sigma * p.noise((rows, *bias.mu.shape), bias.mu), noise)
        return p.expand(mean) + noise

    def _claim(self, p: Pass) -> tuple[Gaussian, Gaussian | None]:
        """Return the Gaussians, marked as perturbed in this pass."""
        weight, bias = self.gaussian("weight"), self.gaussian("bias")
        assert weight is not None
        for gaussian in (weight, bias):
            if gaussian is not None:
                p.perturb_once(gaussian)
        return weight, bias

    def _channels(self, x: Tensor) -> int:
        return x.shape[self.channel_axis]

    def _per_channel(self, values: Tensor, like: Tensor) -> Tensor:
        """Give [rows, channels] as many axes as ``like`` has."""
        inner = like.dim() - 2
        if self.channel_axis == 1:
            return values.reshape(*values.shape, *[1] * inner)
        return values.reshape(values.shape[0], *[1] * inner, values.shape[1])


class BayesLinear(_Affine):
    """A linear layer with Gaussian weights."""

    channel_axis = -1

    def transform(self, x: Tensor, weights: Weights) -> Tensor:
        """Apply one weight matrix."""
        return F.linear(x, weights["weight"], weights.get("bias"))

    def transform_stacked(self, x: Tensor, weights: Weights, p: Pass) -> Tensor:
        """Apply S weight matrices with one batched product, or one wide product where they share the input."""
        weight, bias = weights["weight"], weights.get("bias")
        if not p.is_expanded(x):
            wide = F.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
            return wide.reshape(*x.shape[:-1], p.samples, -1).movedim(-2, 1).flatten(0, 1)
        by_sample = p.by_sample(x).flatten(1, -2)
        if bias is None:
            out = torch.bmm(by_sample, weight.transpose(1, 2))
        else:
            out = torch.baddbmm(bias.unsqueeze(1), by_sample, weight.transpose(1, 2))
        return out.reshape(p.samples, p.rows, *x.shape[1:-1], -1).transpose(0, 1).flatten(0, 1)

    def perturb(self, x: Tensor, p: Pass) -> Tensor:
        """Local reparameterisation (Kingma et al. 2015): sample the output, whose mean and variance are known.

        It is exact for one vector a row. Where a row holds several vectors (a sequence) they share one weight sample,
        which independent output noise would break: flipout serves there.
        """
        if p.estimator != "local" or x.dim() != 2:
            return super().perturb(x, p)
        weight, bias = self._claim(p)
        mean = F.linear(x, weight.mean, None if bias is None else bias.mean)
        if fused.serves(*(g.rho for g in (weight, bias) if g is not None)):
            variance = self._output_variance(x, weight, bias, lambda g: fused.sigma_squared(g.rho, g.keep))
            samples = 1 if p.is_expanded(x) else p.samples
            return fused.local_noise(mean.float(), variance, *p.new_noise(x.device), samples)
        spread = self._output_spread(x, weight, bias).to(mean.dtype)
        if p.is_expanded(x):
            return torch.addcmul(mean, spread, p.noise(tuple(mean.shape), mean))
        noise = p.noise((p.rows, p.samples, mean.shape[1]), mean)
        return torch.addcmul(mean.unsqueeze(1), spread.unsqueeze(1), noise).flatten(0, 1)

    def _output_spread(self, x: Tensor, weight: Gaussian, bias: Gaussian | None) -> Tensor:
        """Return the standard deviation of the output."""
        variance = self._output_variance(x, weight, bias, lambda g: g.sigma.square())
        # The gradient of a square root is infinite at 0, where there is neither noise nor anything to learn.
        some = variance > 0
        return variance.where(some, 1).sqrt() * some

    def _output_variance(
        self, x: Tensor, weight: Gaussian, bias: Gaussian | None, square_of: Callable[[Gaussian], Tensor]
    ) -> Tensor:
        """Return the output's variance, in the weights' own precision: squares underflow early."""
        with torch.autocast(x.device.type, enabled=False):
            squares = x.to(weight.mu.dtype).square()
            return F.linear(squares, square_of(weight), None if bias is None else square_of(bias))

    def extra_repr(self) -> str:
        """Say the sizes."""
        weight = self.gaussian("weight")
        assert weight is not None
        return f"in_features={weight.mu.shape[1]}, out_features={weight.mu.shape[0]}"


class BayesConv(_Affine):
    """A one- or two-dimensional convolution with Gaussian weights."""

    def __init__(
        self,
        weight: Gaussian,
        bias: Gaussian | None = None,
        *,
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int = 1,
        wrap: tuple[str, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(weight, bias)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.wrap = wrap
        """A padding other than zeros: its mode, and its widths as ``F.pad`` takes them."""

    @classmethod
    def like(cls, layer: nn.Conv1d | nn.Conv2d, weight: Gaussian, bias: Gaussian | None) -> BayesConv:
        """Make the Bayesian form of an ordinary convolution."""
        zeros = layer.padding_mode == "zeros"
        return cls(
            weight,
            bias,
            stride=layer.stride,
            padding=layer.padding if zeros else (0,) * len(layer.stride),
            dilation=layer.dilation,
            groups=layer.groups,
            wrap=None if zeros else (layer.padding_mode, tuple(layer._reversed_padding_repeated_twice)),
        )

    def transform(self, x: Tensor, weights: Weights) -> Tensor:
        """Apply one set of filters."""
        return self._convolve(x, weights["weight"], weights.get("bias"), self.groups)

    def transform_stacked(self, x: Tensor, weights: Weights, p: Pass) -> Tensor:
        """Apply S sets of filters with one grouped convolution, or a wide one where they share the input."""
        weight, bias = weights["weight"].flatten(0, 1), weights.get("bias")
        bias = None if bias is None else bias.flatten()
        if not p.is_expanded(x) and self.groups == 1:
            out = self._convolve(x, weight, bias, 1)
        else:
            side_by_side = p.expand(x).reshape(p.rows, p.samples * x.shape[1], *x.shape[2:])
            out = self._convolve(side_by_side, weight, bias, p.samples * self.groups)
        return out.reshape(p.rows * p.samples, -1, *out.shape[2:])

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        if self.wrap is not None:
            x = F.pad(x, self.wrap[1], mode=self.wrap[0])
        convolve = F.conv1d if weight.dim() == 3 else F.conv2d
        return convolve(x, weight, bias, self.stride, self.padding, self.dilation, groups)

    def extra_repr(self) -> str:
        """Say what an ordinary convolution says."""
        return f"stride={self.stride}, padding={self.padding}, dilation={self.dilation}, groups={self.groups}"
