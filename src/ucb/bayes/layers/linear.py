"""The linear layer, under all three estimators."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ucb.bayes.layers.base import Affine, Weights
from ucb.bayes.passes import Pass
from ucb.bayes.posterior import Gaussian
from ucb.kernels.side_stream import run_on_side_stream
from ucb.kernels.triton import fused, launch, narrow


class BayesLinear(Affine):
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
        if launch.supports(*(g.rho for g in (weight, bias) if g is not None)):
            return self._perturb_fused(x, weight, bias, p)
        mean = F.linear(x, weight.mean, None if bias is None else bias.mean)
        variance = self._output_variance(x, weight, bias, lambda g: g.sigma.square())
        # The gradient of a square root is infinite at 0, where there is neither noise nor anything to learn.
        some = variance > 0
        spread = (variance.where(some, 1).sqrt() * some).to(mean.dtype)
        if p.is_expanded(x):
            return torch.addcmul(mean, spread, p.noise(tuple(mean.shape), mean))
        noise = p.noise((p.rows, p.samples, mean.shape[1]), mean)
        return torch.addcmul(mean.unsqueeze(1), spread.unsqueeze(1), noise).flatten(0, 1)

    def _perturb_fused(self, x: Tensor, weight: Gaussian, bias: Gaussian | None, p: Pass) -> Tensor:
        """Do the same on a GPU: the variance is computed beside the mean, and the noise is never stored."""
        samples = 1 if p.is_expanded(x) else p.samples
        if samples == 1 and narrow.is_supported(x, weight, bias):
            return narrow.narrow_linear(x, weight, bias, *p.new_noise(x.device))
        wait = run_on_side_stream(lambda: self._output_variance(x, weight, bias, p.sigma_squared), x)
        mean = F.linear(x, weight.mean, None if bias is None else bias.mean)
        return fused.local_noise(mean.float(), wait(), *p.new_noise(x.device), samples)

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
