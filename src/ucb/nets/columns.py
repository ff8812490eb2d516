"""A column of layers for each task, side by side; each also reads the features of the columns before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.nets.heads import HeadedNet, Heads
from ucb.nets.stages import Stage, Staged, draw_weights, widest


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


class Block(nn.Module):
    """One stage of one column."""

    def __init__(self, stage: Stage, column: int, below: int, units: int, *, is_first: bool) -> None:
        super().__init__()
        self.layer = stage.layer_of(below, units)
        self.rest = stage.rest_copied()
        self.lateral = None if column == 0 or is_first else Lateral(stage, column, below, units)

    def forward(self, own: Tensor, earlier: Sequence[Tensor]) -> Tensor:
        """Return features from the column's own below and those of the columns before it."""
        x = self.layer(own)
        if self.lateral is not None:
            x = x + self.lateral(earlier)
        features: Tensor = self.rest(x)
        return features


class ColumnNet(HeadedNet):
    """Answers with column ``current``, for which the columns before it are run too; they neither learn nor drop out."""

    def __init__(self, staged: Staged, heads: Sequence[Stage], factor: float) -> None:
        nn.Module.__init__(self)
        widths = staged.widths(factor)
        self.stem = nn.Sequential(*staged.stem)
        self.columns, self.tops = [], []
        for column, head in enumerate(heads):
            below, blocks = staged.stages[0].inputs, []
            for depth, (stage, units) in enumerate(zip(staged.stages, widths, strict=True)):
                blocks.append(Block(stage, column, below, units, is_first=depth == 0))
                below = units
            self.columns.append(blocks)
            self.tops.append(Block(head, column, below, head.units, is_first=False))
        self.trunk = nn.ModuleList(nn.ModuleList(blocks) for blocks in self.columns)
        self.heads = Heads(self.tops)
        self.current = 0

    @classmethod
    def within(cls, staged: Staged, heads: Sequence[Stage], generator: torch.Generator) -> ColumnNet:
        """Return columns with fresh weights, as wide as they can be without more weights than the staged net has."""
        net = cls(staged, heads, widest(lambda factor: size_of(cls(staged, heads, factor)), staged.size))
        net.to_empty(device=staged.stages[0].layer.weight.device)
        draw_weights(net, generator)
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


def size_of(net: nn.Module) -> int:
    """Return how many weights a net has."""
    return sum(p.numel() for p in net.parameters())
