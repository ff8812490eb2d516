"""What the optimisers work on: one parameter group for each Gaussian weight tensor, one for all ordinary parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

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


def without_groups(state_dict: dict[str, Any], is_left_out: Callable[[str], bool]) -> dict[str, Any]:
    """Return an optimiser's state without the groups of some names."""
    groups = [group for group in state_dict["param_groups"] if not is_left_out(group["name"])]
    wanted = {place for group in groups for place in group["params"]}
    state = {place: kept for place, kept in state_dict["state"].items() if place in wanted}
    return {"state": state, "param_groups": groups}
