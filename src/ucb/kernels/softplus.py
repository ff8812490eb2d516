"""sigma = softplus(rho), there and back, where exp(rho) overflows or underflows too."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_RHO = -40.0
"""Below it softplus(rho) is exp(rho) to the last digit, in double precision too; far below it underflows."""


def inverse_softplus(sigma: Tensor) -> Tensor:
    """Return rho with softplus(rho) = sigma, without overflow for large sigma."""
    return sigma + torch.log(-torch.expm1(-sigma))


def log_softplus(rho: Tensor) -> Tensor:
    """Return log softplus(rho), which is rho itself where exp(rho) would underflow."""
    return torch.where(rho > SMALLEST_RHO, F.softplus(rho.clamp_min(SMALLEST_RHO)).log(), rho)
