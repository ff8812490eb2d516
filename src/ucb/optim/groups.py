"""What the optimisers work on: one parameter group for each Gaussian weight tensor, one for all ordinary parameters."""

from __future__ import annotations

from typing import Any

from torch import nn

from ucb.bayes.posterior import Gaussian, gaussians

Group = dict[str, Any]
"""A Gaussian's group holds ``params`` [mu, rho], its ``name``, and its ``layer``; the ordinary one has neither."""


def param_groups(net: nn.Module) -> list[Group]:
    """Return the parameter groups of a net, for any optimiser of this package."""
    groups = [gaussian_group(name, gaussian) for name, gaussian in gaussians(net)]
    taken = {id(p) for group in groups for p in group["params"]}
    ordinary = [p for p in net.parameters() if id(p) not in taken]
    if ordinary:
        groups.append({"params": ordinary, "name": "", "layer": ""})
    return groups


def gaussian_group(name: str, gaussian: Gaussian) -> Group:
    """Return the group of one Gaussian weight tensor."""
    return {"params": [gaussian.mu, gaussian.rho], "name": name, "layer": name.rpartition(".")[0]}


def is_gaussian(group: Group) -> bool:
    """Say whether a group holds mu and rho of one weight tensor."""
    return bool(group["name"])
