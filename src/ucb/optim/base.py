"""What the optimisers with a rate for every weight share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from ucb.optim.groups import Group


class PerWeightOptimizer(Optimizer):
    """Gradient descent in which ``state[parameter]["scale"]``, where there is one, multiplies the group's rate."""

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update(group)
        return loss

    @abstractmethod
    def update(self, group: Group) -> None:
        """Move the parameters of one group."""

    @abstractmethod
    def consolidate(self) -> None:
        """End a task: from now on each weight learns at a rate that its present uncertainty allows."""

    def descend(self, parameter: Tensor, direction: Tensor, lr: float) -> None:
        """Step: alpha <- alpha / Omega (Eq. 4 and 5), then theta <- theta - alpha * direction (Algorithm 1)."""
        scale = self.state[parameter].get("scale")
        if scale is None:
            parameter.add_(direction, alpha=-lr)
        else:
            parameter.addcmul_(direction, scale, value=-lr)
