"""How important a weight is (Eq. 6 and 7 of the paper), and how much slower important weights learn (Eq. 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ucb.bayes.checks import one_of, positive

Importance = Literal["certainty", "snr"]


@dataclass(frozen=True)
class RateScale:
    """The factor on a weight's learning rate: gain / Omega, at most ``cap``.

    ``certainty`` is Omega = 1 / sigma (Eq. 6): the rate shrinks with the spread. ``snr`` is Omega = |mu| / sigma
    (Eq. 7), which vanishes at mu = 0: without a cap (``cap=None``) such a weight's rate is boundless.
    """

    importance: Importance = "certainty"
    gain: float = 1.0
    cap: float | None = 1.0

    def __post_init__(self) -> None:
        one_of("importance", self.importance, get_args(Importance))
        positive("gain", self.gain)
        if self.cap is not None:
            positive("cap", self.cap)

    def __call__(self, mu: Tensor, sigma: Tensor) -> Tensor:
        """Return the factor for every weight."""
        scale = self.gain / importance(self.importance, mu, sigma)
        return scale.clamp_max(torch.finfo(scale.dtype).max if self.cap is None else self.cap)


def importance(kind: Importance, mu: Tensor, sigma: Tensor) -> Tensor:
    """Return Omega for every weight."""
    return torch.reciprocal(sigma) if kind == "certainty" else mu.abs() / sigma
