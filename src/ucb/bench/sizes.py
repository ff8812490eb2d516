"""The nets whose training step is timed, and on how much data; tests use smaller ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ucb.nets import HeadedNet, resnet18

RATE = 0.01


@dataclass(frozen=True)
class Sizes:
    """What the two nets have in common."""

    side: int
    classes: int = 10
    batch: int = 64
    samples: int = 10
    examples: int = 50_000
    """The N of the objective."""

    def labels(self, device: torch.device, rows: int | None = None) -> Tensor:
        """Return random labels of a batch."""
        return torch.randint(self.classes, (rows or self.batch,), device=device)


@dataclass(frozen=True)
class MLPSizes(Sizes):
    """One hidden layer, for grey images."""

    side: int = 28
    hidden: int = 1200
    batches: int = 200
    """In an epoch through the engine."""

    @property
    def inputs(self) -> int:
        """Pixels of an image."""
        return self.side**2

    @property
    def title(self) -> str:
        """The net and the data in words."""
        layers = f"{self.inputs}-{self.hidden}-{self.classes}"
        return f"MLP {layers}, batch {self.batch}, {self.samples} samples"

    def net(self) -> nn.Module:
        """Return an ordinary net."""
        return nn.Sequential(nn.Linear(self.inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.classes))

    def batch_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return a random batch."""
        return torch.randn(self.batch, self.inputs, device=device), self.labels(device)


@dataclass(frozen=True)
class ResNetSizes(Sizes):
    """ResNet18 for small colour images."""

    side: int = 32
    width: int = 64

    @property
    def title(self) -> str:
        """The net and the data in words."""
        return f"ResNet18 for {self.side}x{self.side}, batch {self.batch}, {self.samples} samples"

    def net(self) -> HeadedNet:
        """Return an ordinary net."""
        return resnet18((3, self.side, self.side), (self.classes,), self.width, "group")

    def batch_on(self, device: torch.device, rows: int | None = None) -> tuple[Tensor, Tensor]:
        """Return a random batch."""
        return torch.randn(rows or self.batch, 3, self.side, self.side, device=device), self.labels(device, rows)
