"""What the optimisers with a rate for every weight share: parameter groups, and how a step is taken.

There is one group for each Gaussian weight tensor, and one for all ordinary parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ucb.bayes.posterior import Gaussian, gaussians

Group = dict[str, Any]
"""A Gaussian's group holds ``params`` [mu, rho], its ``name``, its ``layer``'s, and the ``gaussian`` itself."""


def param_groups(net: nn.Module, prefix: str = "") -> list[Group]:
    """Return the parameter groups of a net, for any optimiser of this package.

    ``prefix`` tells the weights of several nets in one optimiser apart: a trunk's from a head's.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 2))
    >>> [group["name"] for group in ucb.param_groups(net, "trunk.")]
    ['trunk.weight', 'trunk.bias']
    """
    groups = [gaussian_group(prefix + name, gaussian) for name, gaussian in gaussians(net)]
    taken = {id(p) for group in groups for p in group["params"]}
    ordinary = [p for p in net.parameters() if id(p) not in taken]
    if ordinary:
        groups.append({"params": ordinary, "name": f"{prefix}ordinary parameters", "is_gaussian": False})
    return groups


def gaussian_group(name: str, gaussian: Gaussian) -> Group:
    """Return the group of one Gaussian weight tensor."""
    layer = name.rpartition(".")[0]
    params = [gaussian.mu, gaussian.rho]
    return {"params": params, "name": name, "layer": layer, "is_gaussian": True, "gaussian": gaussian}


def drop_groups(state_dict: dict[str, Any], is_left_out: Callable[[str], bool]) -> dict[str, Any]:
    """Return an optimiser's state without the groups of some names."""
    groups = [group for group in state_dict["param_groups"] if not is_left_out(group["name"])]
    wanted = {place for group in groups for place in group["params"]}
    state = {place: kept for place, kept in state_dict["state"].items() if place in wanted}
    return {"state": state, "param_groups": groups}


def add_groups(state_dict: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return an optimiser's state with the groups of another one of which it has none of that name, in that order."""
    known = {group["name"]: (group, state_dict["state"]) for group in state_dict["param_groups"]}
    groups: list[Group] = []
    state: dict[int, Any] = {}
    for other in others["param_groups"]:
        group, kept = known.get(other["name"], (other, others["state"]))
        places = range(len(state_places := group["params"]))
        first = sum(len(earlier["params"]) for earlier in groups)
        state |= {first + i: kept[state_places[i]] for i in places if state_places[i] in kept}
        groups.append({**group, "params": [first + i for i in places]})
    return {"state": state, "param_groups": groups}


class PerWeightOptimizer(Optimizer):
    """Gradient descent in which ``state[parameter]["scale"]``, where there is one, multiplies the group's rate.

    ``settings`` names the attributes that say how it works: they come from the constructor and not from a state, and a
    copy takes them along.
    """

    settings: tuple[str, ...] = ()
    clip_scale: Tensor | None = None
    """What the gradients of the next step are multiplied by; only where ``can_scale_gradients`` says so."""

    def __init__(self, groups: Iterable[Group], defaults: Group) -> None:
        self.frozen: dict[nn.Parameter, Tensor] = {}
        """Masks of the weights that must not change, kept by :class:`ucb.optim.Freeze`."""
        self.gaussians: dict[nn.Parameter, Gaussian] = {}
        """Whose mu or rho a parameter is: a weight that is pruned must not move."""
        super().__init__(groups, {"layer": "", **defaults})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group made by ``param_groups`` or ``gaussian_group``."""
        if "is_gaussian" not in param_group:
            raise ValueError("mu and rho of a weight must be told apart: make the groups with param_groups(net)")
        if any(param_group["name"] == group["name"] for group in self.param_groups):
            raise ValueError(f"two groups are called {param_group['name']!r}: give param_groups(net, prefix) a prefix")
        if param_group["is_gaussian"]:
            self.gaussians |= dict.fromkeys(param_group["params"], param_group["gaussian"])
        # An object has no place in a group, which is part of the state.
        super().add_param_group({key: value for key, value in param_group.items() if key != "gaussian"})

    def remove_param_groups(self, prefix: str) -> None:
        """Remove the groups whose names begin with ``prefix``, with their weights' gradients and state."""
        gone = [group for group in self.param_groups if group["name"].startswith(prefix)]
        for parameter in (p for group in gone for p in group["params"]):
            parameter.grad = None  # else it would count in the length of later gradients
            for known in (self.state, self.gaussians, self.frozen):
                known.pop(parameter, None)
        self.param_groups[:] = [group for group in self.param_groups if not group["name"].startswith(prefix)]

    def keep_mask(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the mask of the weights that are not pruned, if any are."""
        gaussian = self.gaussians.get(parameter)
        return None if gaussian is None else gaussian.keep

    def gaussian_groups(self) -> list[Group]:
        """Return the groups that hold mu and rho of one weight tensor each."""
        return [group for group in self.param_groups if group["is_gaussian"]]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a copy of a state, since steps change its tensors in place and the caller may still use it."""
        super().load_state_dict(copy.deepcopy(state_dict))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        kept = {"frozen": self.frozen, "gaussians": self.gaussians}
        return {**state, **kept, **{name: getattr(self, name) for name in self.settings}}

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
        self.prepare()
        for group in self.param_groups:
            self.update(group)
        self.finish()
        return loss

    def can_scale_gradients(self) -> bool:
        """Whether the next step can multiply the gradients by ``clip_scale`` on its way, and save a walk over them."""
        return False

    def prepare(self) -> None:
        """Get ready for a step."""

    def finish(self) -> None:
        """Forget what was meant for this step alone."""
        self.clip_scale = None

    def update(self, group: Group) -> None:
        """Move the parameters of one group."""
        if group["is_gaussian"]:
            self.update_gaussian(group, *group["params"])
            return
        for parameter in group["params"]:
            if parameter.grad is not None:
                self.update_ordinary(parameter, parameter.grad, group["lr"])

    def update_gaussian(self, group: Group, mu: nn.Parameter, rho: nn.Parameter) -> None:
        """Move the means and spreads of one weight tensor."""
        raise NotImplementedError

    def update_ordinary(self, parameter: nn.Parameter, grad: Tensor, lr: float) -> None:
        """Move an ordinary parameter."""
        self.descend(parameter, grad, lr)

    def consolidate(self) -> None:
        """End a task: forget its moments, which say how large its gradients were."""
        self.state.clear()

    def descend(self, parameter: nn.Parameter, direction: Tensor, lr: float) -> None:
        """Step: alpha <- alpha / Omega (Eq. 4 and 5), then theta <- theta - alpha * direction (Algorithm 1)."""
        keep = self.keep_mask(parameter)
        if keep is not None:
            direction = direction.where(keep, 0)  # momentum may remember a weight that is pruned by now
        scale = self.state[parameter].get("scale")
        if scale is None:
            parameter.add_(direction, alpha=-lr)
        else:
            parameter.addcmul_(direction, scale, value=-lr)
