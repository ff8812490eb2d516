"""A net whose units can be shut: each stage's features are multiplied by one gate a unit."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ucb.nets.heads import HeadedNet
from ucb.nets.stages import split


class GatedNet(HeadedNet):
    """The given net, weights and names and all, with ``gates`` for its stages; None leaves all open."""

    def __init__(self, net: HeadedNet) -> None:
        nn.Module.__init__(self)
        self.staged = split(net)
        self.trunk, self.heads, self.current = net.trunk, net.heads, net.current
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
