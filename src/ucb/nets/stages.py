"""A sequential trunk as stages, and nets that gate, repeat or extend them: gated, in columns, and of modules.

A stage is one layer with weights and the weightless modules behind it. Its units are the layer's outputs: features of a
linear layer, channels of a convolution.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.nets.heads import HeadedNet, Heads

Layer = nn.Linear | nn.Conv2d
Net = TypeVar("Net", bound=nn.Module)

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
        return self.layer.weight.shape[0]

    @property
    def inputs(self) -> int:
        """How many units come in."""
        return self.layer.weight.shape[1] // self.positions

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
        names = ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        alike = {name: getattr(layer, name) for name in names}
        return nn.Conv2d(inputs, units, bias=bias, device="meta", dtype=layer.weight.dtype, **alike)

    def copy_rest(self) -> nn.Sequential:
        """Return copies of the modules behind the layer."""
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
    for module in _flatten(net.trunk):
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
        stages.append(_build_stage(stages[-1] if stages else None, layer, tuple(behind)))
    return Staged(tuple(stem), tuple(stages), tuple(_build_stage(stages[-1], head) for head in net.heads))


def split_for(method: str, net: HeadedNet) -> Staged:
    """Return the stages that a method needs; a net that has none is refused in the method's name."""
    try:
        return split(net)
    except ValueError as reason:
        raise ValueError(f"{method} takes a net apart layer by layer, as mlp and alexnet allow: {reason}") from None


def _build_stage(before: Stage | None, layer: nn.Module, rest: tuple[nn.Module, ...] = ()) -> Stage:
    """Return a layer as the stage that follows another."""
    if not isinstance(layer, nn.Linear | nn.Conv2d) or type(layer) not in (nn.Linear, nn.Conv2d):
        raise ValueError(f"a net whose head is a {_kind(layer)} cannot be split into stages")
    if isinstance(layer, nn.Conv2d) and layer.groups != 1:
        raise ValueError("a convolution in groups cannot be split into stages of units that all see each other")
    if before is None:
        return Stage(layer, rest)
    flattens = [m for m in before.rest if isinstance(m, nn.Flatten)]
    positions, left = divmod(layer.weight.shape[1], before.units)
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


def _flatten(trunk: nn.Sequential) -> Iterator[nn.Module]:
    for module in trunk:
        yield from _flatten(module) if type(module) is nn.Sequential else (module,)


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


def build_within(build: Callable[[float], Net], staged: Staged, generator: torch.Generator) -> Net:
    """Return a net of fresh weights, as wide as it can be without more weights than the staged net has.

    ``build`` returns it on the meta device, with all widths multiplied by a factor.
    """
    net = build(find_widest_factor(lambda factor: sum(p.numel() for p in build(factor).parameters()), staged.size))
    net.to_empty(device=staged.stages[0].layer.weight.device)
    draw_weights(net, generator)
    return net


def find_widest_factor(size: Callable[[float], int], limit: int) -> float:
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


class GatedNet(HeadedNet):
    """The given net, weights and names and all, with ``gates`` for its stages; None leaves all open."""

    def __init__(self, net: HeadedNet) -> None:
        nn.Module.__init__(self)
        self.staged = split(net)
        self.trunk, self.heads, self.current = net.trunk, net.heads, net.current
        self.grows, self.output = net.grows, net.output
        self.gates: Sequence[Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the current head."""
        if self.gates is None:
            return super().forward(x)
        for module in self.staged.stem:
            x = module(x)
        for stage, gate in zip(self.staged.stages, self.gates, strict=True):
            x = stage(x)
            x = x * stage.over_features(gate, x)
        logits: Tensor = self.heads[self.chosen](x)
        return logits


class Lateral(nn.Module):
    """The adapter of Rusu et al. (Eq. 2): earlier columns' features, scaled, brought to one column's width, rectified.

    ``reduce`` acts on the units at each position by itself: on feature maps it is a 1 x 1 convolution.
    """

    def __init__(self, stage: Stage, columns: int, below: int, units: int) -> None:
        super().__init__()
        weight = stage.layer.weight
        self.below = below
        self.scale = nn.Parameter(weight.new_empty(columns, device="meta"))
        self.reduce = nn.Linear(columns * below, below, device="meta", dtype=weight.dtype)
        self.widen = stage.layer_of(below, units, bias=False)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return what is added to a layer's outputs."""
        rows, shape = len(features[0]), features[0].shape
        scaled = [scale * h.reshape(rows, self.below, -1) for scale, h in zip(self.scale, features, strict=True)]
        joined = torch.cat(scaled, 1)
        if joined.shape[2] == 1:
            reduced = self.reduce(joined.squeeze(2))
        else:
            # not a matrix product: that rounds differently once its weights need no gradient
            reduced = F.conv1d(joined, self.reduce.weight.unsqueeze(2), self.reduce.bias)
        mixed: Tensor = self.widen(
            F.relu(reduced).reshape(rows, *((-1,) if len(shape) == 2 else (self.below, *shape[2:])))
        )
        return mixed


class ColumnStage(nn.Module):
    """One stage of one column."""

    def __init__(self, stage: Stage, column: int, below: int, units: int, *, is_first: bool) -> None:
        super().__init__()
        self.layer = stage.layer_of(below, units)
        self.rest = stage.copy_rest()
        self.lateral = None if column == 0 or is_first else Lateral(stage, column, below, units)

    def forward(self, own: Tensor, earlier: Sequence[Tensor]) -> Tensor:
        """Return features from the column's own below and those of the columns before it."""
        x = self.layer(own)
        if self.lateral is not None:
            x = x + self.lateral(earlier)
        features: Tensor = self.rest(x)
        return features


class ColumnNet(HeadedNet):
    """A column of layers for each task, side by side; each also reads the features of the columns before it.

    Answers with column ``current``, for which the columns before it are run too; they neither learn nor drop out.
    """

    def __init__(self, staged: Staged, heads: Sequence[Stage], factor: float) -> None:
        nn.Module.__init__(self)
        widths = staged.widths(factor)
        self.stem = nn.Sequential(*staged.stem)
        self.columns, self.tops = [], []
        for column, head in enumerate(heads):
            below, blocks = staged.stages[0].inputs, []
            for depth, (stage, units) in enumerate(zip(staged.stages, widths, strict=True)):
                blocks.append(ColumnStage(stage, column, below, units, is_first=depth == 0))
                below = units
            self.columns.append(blocks)
            self.tops.append(ColumnStage(head, column, below, head.units, is_first=False))
        self.trunk = nn.ModuleList(nn.ModuleList(blocks) for blocks in self.columns)
        self.heads = Heads(self.tops)
        self.current = 0

    @classmethod
    def within(cls, staged: Staged, heads: Sequence[Stage], generator: torch.Generator) -> ColumnNet:
        """Return columns with fresh weights, as wide as they can be without more weights than the staged net has."""
        net = build_within(lambda factor: cls(staged, heads, factor), staged, generator)
        with torch.no_grad():
            for module in net.modules():
                if isinstance(module, Lateral):
                    module.scale.uniform_(0, 0.1, generator=generator)  # the paper: "a random small value"
        return net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the current column."""
        own = self.chosen
        features = [self.stem(x)] * (own + 1)
        for depth in range(len(self.columns[0])):
            with torch.no_grad():
                earlier = [self.columns[c][depth](features[c], features[:c]) for c in range(own)]
            features = [*earlier, self.columns[own][depth](features[own], features[:own])]
        logits: Tensor = self.tops[own](features[own], features[:own])
        return logits

    def train(self, mode: bool = True) -> Self:
        """Let only the current column drop units."""
        super().train(mode)
        for column in range(self.chosen):
            for block in self.columns[column]:
                block.eval()
        return self


Path = list[list[int]]
"""For each stage, which modules are used; one named twice counts once."""


class ModularNet(HeadedNet):
    """A bank of small modules in place of each layer; the outputs of those in use are summed.

    Answers with the modules on ``path`` and the head called ``current``.
    """

    def __init__(self, staged: Staged, heads: Sequence[Stage], modules: int, factor: float) -> None:
        nn.Module.__init__(self)
        self.stem = nn.Sequential(*staged.stem)
        self.banks: list[list[nn.Module]] = []
        below = staged.stages[0].inputs
        for stage, units in zip(staged.stages, staged.widths(factor), strict=True):
            bank = [nn.Sequential(stage.layer_of(below, units), stage.copy_rest()) for _ in range(modules)]
            self.banks.append([*bank])
            below = units
        self.trunk = nn.ModuleList(nn.ModuleList(bank) for bank in self.banks)
        self.heads = Heads(head.layer_of(below, head.units) for head in heads)
        self.current = 0
        self.path: Path = [[0] for _ in self.banks]

    @classmethod
    def within(cls, staged: Staged, heads: Sequence[Stage], modules: int, generator: torch.Generator) -> ModularNet:
        """Return a bank with fresh weights, as wide as it can be without more weights than the staged net has."""
        return build_within(lambda factor: cls(staged, heads, modules, factor), staged, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the current head."""
        x = self.stem(x)
        for bank, used in zip(self.banks, self.path, strict=True):
            x = functools.reduce(operator.add, [bank[index](x) for index in sorted(set(used))])
        logits: Tensor = self.heads[self.chosen](x)
        return logits
