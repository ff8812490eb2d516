"""A trunk that all tasks share, and their heads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class HeadedNet(nn.Module):
    """``forward`` answers with the head called ``current``; the others rest.

    All heads are there from the start, so that a net's weights do not depend on when a task comes.
    """

    def __init__(self, trunk: nn.Module, features: int, head_sizes: Sequence[int]) -> None:
        super().__init__()
        self.trunk = trunk
        self.heads = nn.ModuleList(nn.Linear(features, size) for size in head_sizes)
        self.current = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the current head."""
        logits: Tensor = self.heads[self.current](self.trunk(x))
        return logits
