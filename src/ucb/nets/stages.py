"""A sequential trunk as stages, for methods that gate, repeat or extend its layers.

A stage is one layer with weights and the weightless modules behind it. Its units are the layer's outputs: features of a
linear layer, channels of a convolution.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ucb.nets.heads import HeadedNet

Layer = nn.Linear | nn.Conv2d

_ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Tanh, nn.Sigmoid)
_DROPOUT = (nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.Identity)
_POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d, nn.ZeroPad2d)
WEIGHTLESS: tuple[type[nn.Module], ...] = (*_ACTIVATIONS, *_DROPOUT, *_POOLING, nn.Flatten)
"""Modules that may follow a layer: they treat every unit alike and by itself."""


@dataclass(frozen=True)
class Stage:
    """A layer, what follows it, and how many of the layer's inputs each unit of the stage before has."""

    layer: Layer
    rest: tuple[nn.Module, ...] = ()
    positions: int = 1
    """More than one where a linear layer reads flattened channels."""

    @property
    def units(self) -> int:
        """How many units come out."""
        return self.layer.out_features if isinstance(self.layer, nn.Linear) else self.layer.out_channels

    @property
    def inputs(self) -> int:
        """How many units come in."""
        if isinstance(self.layer, nn.Linear):
            return self.layer.in_features // self.positions
        return self.layer.in_channels

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features that the stage makes of ``x``."""
        x = self.layer(x)
        for module in self.rest:
            x = module(x)
        return x

    def over_features(self, values: Tensor, features: Tensor) -> Tensor:
        """Return one value a unit in a shape that multiplies the stage's features."""
        if features.dim() > 2:
            return values.view(-1, *(1 for _ in features.shape[2:]))
        positions = features.shape[1] // len(values)
        return values if positions == 1 else values.repeat_interleave(positions)

    def over_weights(self, outgoing: Tensor, incoming: Tensor | None = None) -> Tensor:
        """Return the larger of two values a weight, its output's and its input's, in a shape that multiplies them."""
        values = outgoing.unsqueeze(1)
        if incoming is not None:
            values = torch.maximum(values, incoming.repeat_interleave(self.positions))
        return values.view(*values.shape, *(1 for _ in self.layer.weight.shape[2:]))

    def layer_of(self, inputs: int, units: int, *, bias: bool = True) -> Layer:
        """Return a layer like this one between other numbers of units, on the meta device: it has no weights yet."""
        layer = self.layer
        bias = bias and layer.bias is not None
        if isinstance(layer, nn.Linear):
            return nn.Linear(inputs * self.positions, units, bias, device="meta", dtype=layer.weight.dtype)
        return nn.Conv2d(
            inputs,
            units,
            layer.kernel_size,  # type: ignore[arg-type]
            layer.stride,  # type: ignore[arg-type]
            layer.padding,  # type: ignore[arg-type]
            layer.dilation,  # type: ignore[arg-type]
            bias=bias,
            padding_mode=layer.padding_mode,
            device="meta",
            dtype=layer.weight.dtype,
        )

    def rest_copied(self) -> nn.Sequential:
        """Return modules of one's own like those behind the layer."""
        return nn.Sequential(*copy.deepcopy(self.rest))


@dataclass(frozen=True)
class Staged:
    """A net's parts: modules before the first layer, the trunk's stages, and its heads as stages."""

    stem: tuple[nn.Module, ...]
    stages: tuple[Stage, ...]
    heads: tuple[Stage, ...]

    @property
    def size(self) -> int:
        """How many weights there are."""
        return sum(p.numel() for stage in (*self.stages, *self.heads) for p in stage.layer.parameters())

    def widths(self, factor: float) -> list[int]:
        """Return how many units the stages have when all are made narrower; at least one stays."""
        return [max(1, int(factor * stage.units)) for stage in self.stages]


def split(net: HeadedNet) -> Staged:
    """Return a net's stages, if its trunk is a sequence of linear and convolutional layers and weightless modules."""
    if type(net.trunk) is not nn.Sequential:
        raise ValueError(f"the trunk must be an nn.Sequential to be split into stages, not a {_kind(net.trunk)}")
    parts: list[list[nn.Module]] = [[]]
    for module in _flat(net.trunk):
        if type(module) in (nn.Linear, nn.Conv2d):
            parts.append([module])
        elif type(module) in WEIGHTLESS:
            parts[-1].append(module)
        else:
            raise ValueError(f"a trunk with a {_kind(module)} cannot be split into stages of linear and conv layers")
    stem, *rest = parts
    if not rest:
        raise ValueError("the trunk has no linear or convolutional layer: there is nothing to split into stages")
    if len({id(part[0]) for part in rest}) < len(rest):
        raise ValueError("a trunk that uses one layer twice cannot be split into stages")
    stages: list[Stage] = []
    for layer, *behind in rest:
        stages.append(_after(stages[-1] if stages else None, layer, tuple(behind)))
    return Staged(tuple(stem), tuple(stages), tuple(_after(stages[-1], head) for head in net.heads))


def split_for(method: str, net: HeadedNet) -> Staged:
    """Return the stages that a method needs; a net that has none is refused in the method's name."""
    try:
        return split(net)
    except ValueError as reason:
        raise ValueError(f"{method} takes a net apart layer by layer, as mlp and alexnet allow: {reason}") from None


def _after(before: Stage | None, layer: nn.Module, rest: tuple[nn.Module, ...] = ()) -> Stage:
    """Return a layer as the stage that follows another."""
    if type(layer) not in (nn.Linear, nn.Conv2d):
        raise ValueError(f"a net whose head is a {_kind(layer)} cannot be split into stages")
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    if isinstance(layer, nn.Conv2d) and layer.groups != 1:
        raise ValueError("a convolution in groups cannot be split into stages of units that all see each other")
    if before is None:
        return Stage(layer, rest)
    flattens = [m for m in before.rest if isinstance(m, nn.Flatten)]
    inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    positions, left = divmod(inputs, before.units)
    from_maps = isinstance(before.layer, nn.Conv2d)
    fits = (
        left == 0
        and all((m.start_dim, m.end_dim) == (1, -1) for m in flattens)
        and (positions == 1 or (from_maps and bool(flattens)))
        and (from_maps and not flattens) == isinstance(layer, nn.Conv2d)
    )
    if not fits:
        raise ValueError(f"a trunk cannot be split into stages where {layer} follows {before.units} units")
    return Stage(layer, rest, positions)


def _flat(trunk: nn.Sequential) -> Iterator[nn.Module]:
    for module in trunk:
        yield from _flat(module) if type(module) is nn.Sequential else (module,)


def _kind(module: nn.Module) -> str:
    return type(module).__name__


@torch.no_grad()
def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Give every layer in ``module`` fresh weights, distributed as PyTorch's own: uniform up to fan-in to the -1/2."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=generator)


def widest(size: Callable[[float], int], limit: int) -> float:
    """Return the largest factor on all widths, 1 at most, with which the number of weights stays within ``limit``."""
    if size(1.0) <= limit:
        return 1.0
    low, high = 0.0, 1.0
    if size(low) > limit:
        raise ValueError(f"the net is too small: with one unit everywhere {size(low)} weights are needed, not {limit}")
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if size(middle) <= limit else (low, middle)
    return low
