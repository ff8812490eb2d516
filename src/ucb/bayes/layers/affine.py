"""y = W x + b: what linear and convolutional layers share."""

from __future__ import annotations

from torch import Tensor

from ucb.bayes.layers.base import BayesLayer
from ucb.bayes.passes import Pass
from ucb.bayes.posterior import Gaussian


class Affine(BayesLayer):
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
