"""What Bayesian layers share, and the two layouts of sampled convolutions on a GPU.

Of S samples of B examples a grouped convolution wants [B, S*C, H, W], the rest of a net [B*S, C, H, W]; both with the
channels of one pixel side by side (channels_last), which is how a GPU convolves fastest. In memory that is
[B, H*W, S, C] and [B, S, H*W, C].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ucb.bayes.passes import Pass, pass_for
from ucb.bayes.posterior import Gaussian
from ucb.kernels.triton.launch import apply


def samples_by_pixel(x: Tensor, samples: int) -> Tensor:
    """Return rows [B*S, C, H, W] as [B, S*C, H, W], channels_last."""
    rows, channels, height, width = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(rows // samples, samples, height * width, channels)
    return swap_middle(pixels).view(rows // samples, height, width, -1).permute(0, 3, 1, 2)


def rows_by_pixel(x: Tensor, samples: int) -> Tensor:
    """Return [B, S*C, H, W] as rows [B*S, C, H, W], channels_last."""
    rows, channels, height, width = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(rows, height * width, samples, channels // samples)
    return swap_middle(pixels).view(rows * samples, height, width, -1).permute(0, 3, 1, 2)


def swap_middle(x: Tensor) -> Tensor:
    """Return [a, b, c, d] as [a, c, b, d], contiguous."""
    return apply(_SwapMiddle, x)


class _SwapMiddle(torch.autograd.Function):
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
        return swap_middle(grad)


def _in_large_pieces(x: Tensor) -> Tensor:
    """Return the same memory as numbers of 16 bytes where it can be had in such.

    PyTorch copies what is permuted number by number; in large ones that takes half the time.
    """
    piece = torch.complex128
    fits = x.shape[-1] * x.element_size() % piece.itemsize == 0 and x.data_ptr() % piece.itemsize == 0
    return x.view(piece) if fits and x.numel() else x


Weights = dict[str, Tensor]


class NoSingleWeight(Tensor):
    """What code that reads ``layer.weight`` gets while several samples travel together: it has a kind, but no values.

    Many nets ask a weight for its dtype, to bring their input to it, and for no more. Every other use is an error; what
    still gets around it meets nan.
    """

    KIND = frozenset(
        [getattr(Tensor, name).__get__ for name in ("dtype", "device", "shape", "ndim", "is_cuda", "layout")]
        + [Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point, Tensor.is_complex]
    )

    @classmethod
    def of(cls, weight: Tensor) -> NoSingleWeight:
        """Return the stand-in of a weight."""
        return weight.new_full((), torch.nan).expand(weight.shape).as_subclass(cls)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Say what kind of tensor it is, and refuse the rest."""
        if func in cls.KIND:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise RuntimeError(
            "a Bayesian layer's weight was read while several samples travel together: there is no single weight then. "
            "Use stack=False"
        )


class BayesLayer(nn.Module):
    """A layer whose weights are Gaussians, kept in ``posterior`` by name.

    A layer must say what it does under one set of weights (``transform``). It may say how several samples are done
    at once (``transform_stacked``) and how noise is put on activations instead of weights (``perturb``); without
    those the base class runs the samples one by one, and uses one draw of the weights for all rows.
    """

    def __init__(self, **posterior: Gaussian | None) -> None:
        super().__init__()
        self.posterior = nn.ModuleDict({name: g for name, g in posterior.items() if g is not None})

    def gaussian(self, name: str) -> Gaussian | None:
        """Return the Gaussian called ``name``, if the layer has it."""
        found = self.posterior[name] if name in self.posterior else None  # noqa: SIM401 (ModuleDict has no get)
        assert found is None or isinstance(found, Gaussian)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x`` as the current pass asks."""
        p = pass_for(self)
        if p.estimator in ("local", "flipout"):
            return self.perturb(x, p)
        if p.samples > 1:
            return self.transform_stacked(x, self.weights_of(p), p)
        return self.transform(x, self.weights_of(p))

    def weights_of(self, p: Pass) -> Weights:
        """Return the weights that a pass uses here, by name."""
        return {name: p.weight(g) for name, g in self.posterior.items() if isinstance(g, Gaussian)}

    def transform(self, x: Tensor, weights: Weights) -> Tensor:
        """Transform ``x`` with one set of weights."""
        raise NotImplementedError(f"{type(self).__name__} must define transform()")

    def transform_stacked(self, x: Tensor, weights: Weights, p: Pass) -> Tensor:
        """Transform ``x`` with ``p.samples`` sets of weights, each a leading slice of ``weights``."""
        by_sample = p.by_sample(x) if p.is_expanded(x) else [x] * p.samples
        outputs = [
            self.transform(rows, {name: w[s] for name, w in weights.items()}) for s, rows in enumerate(by_sample)
        ]
        return torch.stack(outputs, 1).flatten(0, 1)

    def perturb(self, x: Tensor, p: Pass) -> Tensor:
        """Transform ``x`` with noise that differs from row to row, if the layer knows how."""
        if p.samples > 1:
            return self.transform_stacked(x, self.weights_of(p), p)
        return self.transform(x, self.weights_of(p))

    def _read(self, name: str) -> Tensor | None:
        """Return the weight of the current pass to code that reads ``layer.weight`` by itself."""
        gaussian = self.gaussian(name)
        if gaussian is None:
            return None
        p = pass_for(self)
        return p.weight(gaussian) if p.samples == 1 else NoSingleWeight.of(gaussian.mu.detach())

    @property
    def weight(self) -> Tensor | None:
        """The weight that the current pass uses: a tensor, as in an ordinary layer."""
        return self._read("weight")

    @property
    def bias(self) -> Tensor | None:
        """The bias that the current pass uses."""
        return self._read("bias")


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
        flipped = p.expand(x) * self._per_channel(p.signs((rows, x.shape[self.channel_axis]), x), x)
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

    def _per_channel(self, values: Tensor, like: Tensor) -> Tensor:
        """Give [rows, channels] as many axes as ``like`` has."""
        inner = like.dim() - 2
        if self.channel_axis == 1:
            return values.reshape(*values.shape, *[1] * inner)
        return values.reshape(values.shape[0], *[1] * inner, values.shape[1])
