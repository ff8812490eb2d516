"""Nets that go on learning, by name; the default is a small one for the size of the examples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from ucb.bayes.checks import nearest
from ucb.nets import HeadedNet, alexnet, mlp, resnet18
from ucb.seeds import derived_seed

SMALLEST = {"small": 10, "alexnet": 22, "resnet18": 8}
"""The least side of an image that a net can read."""
NAMES = ("small", "mlp", "alexnet", "resnet18")
HIDDEN = 400


def small(shape: Sequence[int], head_sizes: Sequence[int]) -> HeadedNet:
    """Return two convolutions and a dense layer: 0.4 million weights for 28x28 images."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    height, width = (((side - 2) // 2 - 2) // 2 for side in shape[1:])
    layers += [nn.Linear(64 * height * width, 256), nn.ReLU()]
    return HeadedNet(nn.Sequential(*layers), 256, head_sizes)


def default_net(shape: Sequence[int]) -> str:
    """Return the name of the net for a shape when nobody chose one."""
    return "small" if len(shape) == 3 and min(shape[1:]) >= SMALLEST["small"] else "mlp"


def checked_net(name: str, shape: Sequence[int]) -> str:
    """Return the name of a net, if it can read examples of this shape."""
    if name not in NAMES:
        raise ValueError(f"there is no net {name!r}: {nearest(name, NAMES)}")
    if name != "mlp" and (len(shape) != 3 or min(shape[1:]) < SMALLEST[name]):
        raise ValueError(f"the net {name} reads images of at least {SMALLEST[name]} pixels a side: choose mlp")
    return name


def fresh_net(name: str, shape: Sequence[int], head_sizes: Sequence[int], seed: int) -> HeadedNet:
    """Return a net before it has learnt anything; later heads do not change the others' first weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed("weights", seed))
        if name == "mlp":
            return mlp(shape, head_sizes, [HIDDEN])
        if name == "small":
            return small(shape, head_sizes)
        # statistics of batches that all waves share would follow the last wave
        return alexnet(shape, head_sizes) if name == "alexnet" else resnet18(shape, head_sizes, norm="group")


def widest_layer(name: str, shape: Sequence[int]) -> tuple[int, int]:
    """Return inputs and units of the dense layer whose size follows that of the examples, told without making a net."""
    if name == "mlp":
        return math.prod(shape), HIDDEN
    sides = shape[1:]
    if name == "small":
        return 64 * math.prod(((side - 2) // 2 - 2) // 2 for side in sides), 256
    if name == "alexnet":
        return 256 * math.prod((((side - 3) // 2 - 2) // 2 - 1) // 2 for side in sides), 2048
    return 1, 512
