"""The convolutions of a net alone, under several weight samples: what a sampled step of it cannot do without."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Convolution(NamedTuple):
    """What a layer does: the shapes of its input and of its filters, and how these move."""

    layer: nn.Conv2d
    shape: tuple[int, ...]
    is_first: bool
    """Whether its input is the net's, of which nobody needs the gradient."""


def convolutions_of(net: nn.Module, x: Tensor) -> list[Convolution]:
    """Return the convolutions that ``x`` meets in a net, in their order."""
    met: list[Convolution] = []

    def note(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        met.append(Convolution(layer, tuple(inputs[0].shape), inputs[0].data_ptr() == x.data_ptr()))

    hooks = [layer.register_forward_pre_hook(note) for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    try:
        with torch.no_grad():
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return met


class GroupedConvolution:
    """One convolution for all samples, a group of channels each, forward and back on random numbers."""

    def __init__(self, like: Convolution, samples: int, device: torch.device, dtype: torch.dtype) -> None:
        layer, (rows, channels, *sides) = like.layer, like.shape
        filters = layer.weight.shape
        self.stride, self.padding, self.dilation = layer.stride, layer.padding, layer.dilation
        self.groups = samples * layer.groups

        def random(*shape: int) -> Tensor:
            made = torch.randn(shape, device=device, dtype=dtype)
            return made.contiguous(memory_format=torch.channels_last)

        self.x = random(rows, samples * channels, *sides).requires_grad_(not like.is_first)
        self.weight = random(samples * filters[0], *filters[1:]).requires_grad_()
        with torch.no_grad():
            self.grad = random(*self.forward().shape)

    def forward(self) -> Tensor:
        """Convolve."""
        return F.conv2d(self.x, self.weight, None, self.stride, self.padding, self.dilation, self.groups)

    def __call__(self) -> tuple[Tensor, ...]:
        """Return the gradients by the filters and, where somebody needs it, by the input."""
        wanted = [self.weight, self.x] if self.x.requires_grad else [self.weight]
        return torch.autograd.grad(self.forward(), wanted, self.grad)


class ConvolutionsAlone:
    """All convolutions of a net, one after the other, with nothing between them."""

    def __init__(self, net: nn.Module, x: Tensor, samples: int, dtype: torch.dtype = torch.float32) -> None:
        self.layers = [GroupedConvolution(each, samples, x.device, dtype) for each in convolutions_of(net, x)]

    def __call__(self) -> None:
        """Go forward and back through each."""
        for layer in self.layers:
            layer()
