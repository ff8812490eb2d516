"""What the optimisers with a rate for every weight share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ucb.optim.groups import Group


class PerWeightOptimizer(Optimizer):
    """Gradient descent in which ``state[parameter]["scale"]``, where there is one, multiplies the group's rate.

    ``settings`` names the attributes that say how it works: they come from the constructor and not from a state, and a
    copy takes them along.
    """

    settings: tuple[str, ...] = ()

    def __init__(self, groups: Iterable[Group], defaults: Group) -> None:
        self.frozen: dict[nn.Parameter, Tensor] = {}
        """Masks of the weights that must not change, kept by :class:`ucb.optim.Freeze`."""
        super().__init__(groups, {"layer": "", **defaults})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group made by ``param_groups`` or ``gaussian_group``."""
        if "is_gaussian" not in param_group:
            raise ValueError("mu and rho of a weight must be told apart: make the groups with param_groups(net)")
        if any(param_group["name"] == group["name"] for group in self.param_groups):
            raise ValueError(f"two groups are called {param_group['name']!r}: give param_groups(net, prefix) a prefix")
        super().add_param_group(param_group)

    def gaussian_groups(self) -> list[Group]:
        """Return the groups that hold mu and rho of one weight tensor each."""
        return [group for group in self.param_groups if group["is_gaussian"]]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {**state, "frozen": self.frozen, **{name: getattr(self, name) for name in self.settings}}

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
