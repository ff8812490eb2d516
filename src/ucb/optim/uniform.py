"""The control for UCB: the same optimiser and the same mean rate, but no weight is told from another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ucb.bayes.checks import positive
from ucb.optim.groups import Group
from ucb.optim.ucb import UCB


class UniformLR(UCB):
    """UCB without uncertainty: it has earned its name only where it beats this.

    After ``consolidate()`` every weight of a layer learns at the mean of the scales that UCB would have given them; or,
    with ``constant``, every weight of the net at that one fraction of the base rate.
    """

    settings = (*UCB.settings, "constant")

    def __init__(self, groups: Iterable[Group], lr: float = 0.01, *, constant: float | None = None, **ucb: Any) -> None:
        self.constant = None if constant is None else positive("constant", constant)
        super().__init__(groups, lr, **ucb)

    def scales_for(self, group: Group) -> Tensor:
        """Return one number for the whole layer."""
        if self.constant is not None:
            return torch.full_like(group["params"][0], self.constant)
        layer = [g for g in self.gaussian_groups() if g["layer"] == group["layer"]]
        scales = torch.cat([super(UniformLR, self).scales_for(g).flatten() for g in layer])
        return scales.mean().expand_as(group["params"][0])
