"""Normalisation layers whose scale and shift are Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from ucb.bayes.layers.base import BayesLayer, Weights
from ucb.bayes.passes import Pass, current, pass_for
from ucb.bayes.posterior import Gaussian
from ucb.kernels.triton import group_norm


class _Norm(BayesLayer):
    """Normalise, then y = x * scale + shift. Only the second half has weights."""

    def __init__(self, weight: Gaussian | None, bias: Gaussian | None, *, eps: float) -> None:
        super().__init__(weight=weight, bias=bias)
        self.eps = eps

    def normalise(self, x: Tensor, p: Pass) -> Tensor:
        """Return ``x`` with its mean and variance taken out."""
        raise NotImplementedError

    def align(self, values: Tensor, x: Tensor) -> Tensor:
        """Give [..., channels] the axes it needs to multiply ``x``."""
        return values.reshape(*values.shape, *[1] * (x.dim() - 2))

    def transform(self, x: Tensor, weights: Weights) -> Tensor:
        """Normalise and rescale with one set of weights."""
        x = self.normalise(x, pass_for(self))
        if "weight" in weights:
            x = x * self.align(weights["weight"], x)
        return x + self.align(weights["bias"], x) if "bias" in weights else x

    def transform_stacked(self, x: Tensor, weights: Weights, p: Pass) -> Tensor:
        """Normalise, then rescale each sample's rows with its own weights."""
        by_row = {name: w.expand(p.rows, *w.shape).flatten(0, 1) for name, w in weights.items()}
        return self.transform(p.expand(x), by_row)

    def perturb(self, x: Tensor, p: Pass) -> Tensor:
        """Draw scale and shift anew for every row: they are so few that this is cheap, and it is exact."""
        rows = p.rows * p.samples
        x = p.expand(x)
        drawn = {}
        for name, gaussian in self.posterior.items():
            assert isinstance(gaussian, Gaussian)
            p.perturb_once(gaussian)
            drawn[name] = gaussian.sample((rows,), p.generator)
        return self.transform(x, drawn)


class BayesLayerNorm(_Norm):
    """Layer normalisation: each row's trailing axes are normalised together."""

    def __init__(
        self, weight: Gaussian | None, bias: Gaussian | None, *, shape: Sequence[int], eps: float = 1e-5
    ) -> None:
        super().__init__(weight, bias, eps=eps)
        self.shape = tuple(shape)

    def normalise(self, x: Tensor, p: Pass) -> Tensor:
        """Normalise the trailing axes."""
        return F.layer_norm(x, self.shape, eps=self.eps)

    def align(self, values: Tensor, x: Tensor) -> Tensor:
        """Put a row axis in front where there is one, and leave the axes between to broadcasting."""
        rows = values.shape[: values.dim() - len(self.shape)]
        between = x.dim() - len(rows) - len(self.shape)
        return values.reshape(*rows, *[1] * between, *self.shape)


class BayesGroupNorm(_Norm):
    """Group normalisation: each row's channels are normalised in groups."""

    def __init__(self, weight: Gaussian | None, bias: Gaussian | None, *, groups: int, eps: float = 1e-5) -> None:
        super().__init__(weight, bias, eps=eps)
        self.groups = groups

    def normalise(self, x: Tensor, p: Pass) -> Tensor:
        """Normalise each group of channels."""
        return F.group_norm(x, self.groups, eps=self.eps)

    def transform_stacked(self, x: Tensor, weights: Weights, p: Pass) -> Tensor:
        """Normalise and rescale each sample's rows, in one kernel where a GPU's convolutions want channels_last."""
        x, weight, bias = p.expand(x), weights.get("weight"), weights.get("bias")
        if group_norm.supports(x, self.groups, weight, bias):
            return group_norm.group_norm(x, self.groups, self.eps, weight, bias)
        return super().transform_stacked(x, weights, p)


class BayesBatchNorm(_Norm):
    """Batch normalisation. Every weight sample has its own batch statistics, as if it had come alone."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, weight: Gaussian | None, bias: Gaussian | None, *, like: nn.BatchNorm1d | nn.BatchNorm2d
    ) -> None:
        super().__init__(weight, bias, eps=like.eps)
        self.momentum = like.momentum
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            value = getattr(like, name)
            self.register_buffer(name, None if value is None else value.clone())

    def normalise(self, x: Tensor, p: Pass) -> Tensor:
        """Normalise with the batch's statistics in training, with the running ones in eval mode."""
        if not self.training and self.running_mean is not None:
            return F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        together = p.samples if p.samples > 1 and p.is_expanded(x) else 1
        channels = x.shape[1]
        by_sample = x.reshape(x.shape[0] // together, together * channels, *x.shape[2:])
        dtype = x.dtype if self.running_mean is None else self.running_mean.dtype
        mean, variance = by_sample.new_zeros(2, by_sample.shape[1], dtype=dtype).unbind()
        # With momentum 1 the two buffers are overwritten by this batch's statistics.
        out = F.batch_norm(by_sample, mean, variance, training=True, momentum=1.0, eps=self.eps)
        if self.training:
            self._track(mean.reshape(together, channels), variance.reshape(together, channels))
        return out.reshape_as(x)

    @torch.no_grad()
    def _track(self, means: Tensor, variances: Tensor) -> None:
        """Move the running statistics once for each sample, as samples that come one after the other do."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        for mean, variance in zip(means, variances, strict=True):
            self.num_batches_tracked += 1
            step = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
            self.running_mean.lerp_(mean, step)
            self.running_var.lerp_(variance, step)


def keeps_statistics(layer: nn.Module) -> bool:
    """Say whether a layer is an ordinary normalisation, or a subclass of one, that takes statistics of a batch."""
    return isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats)


class SampleBySample:
    """The forward of a normalisation that stays deterministic: each sample has its own statistics, as if alone.

    It is put in the place of the layer's ``forward``, and calls what stood there.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __call__(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """Normalise the rows of each sample by themselves."""
        p, layer = current(), self.layer

        def normalise(rows: Tensor) -> Tensor:
            out: Tensor = type(layer).forward(layer, rows, *args, **options)
            return out

        has_fixed = not layer.training and layer.running_mean is not None
        if p is None or p.samples == 1 or has_fixed:
            return normalise(x)
        if p.is_expanded(x):
            return torch.stack([normalise(rows) for rows in p.by_sample(x)], 1).flatten(0, 1)
        return [normalise(x) for _ in range(p.samples)][-1]  # the running statistics move once for each sample
