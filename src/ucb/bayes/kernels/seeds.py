"""Seeds of noise on a device."""

from __future__ import annotations

import torch
from torch import Tensor


def new_seed(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw a seed on the device, out of so many that those of two steps do not come near each other."""
    return torch.randint(1 << 62, (1,), device=device, generator=generator)
