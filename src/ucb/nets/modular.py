"""A bank of small modules in place of each layer; a path says which are in use, and their outputs are summed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ucb.nets.columns import size_of
from ucb.nets.heads import HeadedNet, Heads
from ucb.nets.stages import Stage, Staged, draw_weights, widest

Path = list[list[int]]
"""For each stage, which modules are used; one named twice counts once."""


class ModularNet(HeadedNet):
    """Answers with the modules on ``path`` and the head called ``current``."""

    def __init__(self, staged: Staged, heads: Sequence[Stage], modules: int, factor: float) -> None:
        nn.Module.__init__(self)
        self.stem = nn.Sequential(*staged.stem)
        self.banks: list[list[nn.Module]] = []
        below = staged.stages[0].inputs
        for stage, units in zip(staged.stages, staged.widths(factor), strict=True):
            bank = [nn.Sequential(stage.layer_of(below, units), stage.rest_copied()) for _ in range(modules)]
            self.banks.append([*bank])
            below = units
        self.trunk = nn.ModuleList(nn.ModuleList(bank) for bank in self.banks)
        self.heads = Heads(head.layer_of(below, head.units) for head in heads)
        self.current = 0
        self.path: Path = [[0] for _ in self.banks]

    @classmethod
    def within(cls, staged: Staged, heads: Sequence[Stage], modules: int, generator: torch.Generator) -> ModularNet:
        """Return a bank with fresh weights, as wide as it can be without more weights than the staged net has."""
        factor = widest(lambda factor: size_of(cls(staged, heads, modules, factor)), staged.size)
        net = cls(staged, heads, modules, factor)
        net.to_empty(device=staged.stages[0].layer.weight.device)
        draw_weights(net, generator)
        return net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the current head."""
        x = self.stem(x)
        for bank, used in zip(self.banks, self.path, strict=True):
            x = functools.reduce(operator.add, [bank[index](x) for index in sorted(set(used))])
        logits: Tensor = self.heads[self.chosen](x)
        return logits
