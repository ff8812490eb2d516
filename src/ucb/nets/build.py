"""Nets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, get_type_hints

from ucb.bayes.checks import nearest
from ucb.nets.alexnet import alexnet
from ucb.nets.heads import HeadedNet
from ucb.nets.mlp import mlp
from ucb.nets.patches import patches
from ucb.nets.resnet import resnet18

NETS: dict[str, Callable[..., HeadedNet]] = {"mlp": mlp, "alexnet": alexnet, "resnet18": resnet18, "patches": patches}


def find_net(name: str) -> Callable[..., HeadedNet]:
    """Return what makes the net of that name; for a wrong one the nearest right ones are offered."""
    if name not in NETS:
        raise ValueError(f"there is no net {name!r}: {nearest(name, NETS)}")
    return NETS[name]


def net_options(name: str) -> dict[str, Any]:
    """Return what can be chosen of a net beside its inputs and outputs, and its types."""
    made_by = find_net(name)
    hints = get_type_hints(made_by)
    return {option: hints[option] for option in list(signature(made_by).parameters)[2:]}


def build_net(
    name: str, input_shape: Sequence[int], head_sizes: Sequence[int], options: Mapping[str, Any]
) -> HeadedNet:
    """Return a net with fresh weights."""
    return find_net(name)(input_shape, head_sizes, **options)
