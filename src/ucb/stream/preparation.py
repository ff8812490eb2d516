"""From stored pixels to a net's input."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Preparation:
    """How stored pixels become a net's input, on whatever device they are: (x / 255 - mean) / std, then a permutation.

    ``mean`` and ``std`` hold one number, or one for each channel. ``permutation`` reorders the flattened pixels.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    permutation: Tensor | None = None
    _constants: dict[torch.device, tuple[Tensor, Tensor, Tensor | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, x: Tensor) -> Tensor:
        """Return float inputs; floating-point data is taken as it is, but for the permutation."""
        mean, std, permutation = self._on(x.device)
        if not x.is_floating_point():
            shape = (-1, *[1] * (x.dim() - 2))
            x = (x.float() / 255 - mean.view(shape)) / std.view(shape)
        if permutation is not None:
            x = x.flatten(1)[:, permutation].view_as(x)
        if x.is_cuda and x.dim() == 4 and x.shape[1] > 1:
            return x.contiguous(memory_format=torch.channels_last)  # as a GPU convolves fastest
        return x

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return mean, std and permutation on ``device``; they go there once: a copy a batch would hold up a GPU."""
        if device not in self._constants:
            permutation = None if self.permutation is None else self.permutation.to(device)
            made = torch.tensor(self.mean, device=device), torch.tensor(self.std, device=device), permutation
            self._constants[device] = made
        return self._constants[device]
