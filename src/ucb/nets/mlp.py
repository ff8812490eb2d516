"""The paper's net for MNIST: one hidden layer of ReLU units (784-1200 by default)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from ucb.bayes.checks import count
from ucb.nets.heads import HeadedNet


def mlp(input_shape: Sequence[int], head_sizes: Sequence[int], hidden: Sequence[int] = (1200,)) -> HeadedNet:
    """Return a multilayer perceptron with a head for each size."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(input_shape)
    for units in hidden:
        layers += [nn.Linear(width, count("hidden", units)), nn.ReLU()]
        width = units
    return HeadedNet(nn.Sequential(*layers), width, head_sizes)
