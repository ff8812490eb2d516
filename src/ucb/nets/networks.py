"""The networks that have names: the paper's, and one whose trunk is not trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, Literal, get_args, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.checks import count, nearest, one_of
from ucb.nets.fixed_features import patches
from ucb.nets.heads import HeadedNet, TaskBatchNorm2d

Norm = Literal["batch", "task-batch", "group", "none"]
GROUPS = 8


def mlp(input_shape: Sequence[int], head_sizes: Sequence[int], hidden: Sequence[int] = (1200,)) -> HeadedNet:
    """Return a multilayer perceptron: with one hidden layer of 1200 ReLU units, the paper's net for MNIST."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(input_shape)
    for units in hidden:
        layers += [nn.Linear(width, count("hidden", units)), nn.ReLU()]
        width = units
    return HeadedNet(nn.Sequential(*layers), width, head_sizes)


def alexnet(input_shape: Sequence[int], head_sizes: Sequence[int], dropout: float = 1.0) -> HeadedNet:
    """Return the AlexNet-like net of the paper's baselines for 32x32 images (Serra et al. 2018).

    It has 6,503,872 parameters for 3x32x32 inputs, and 2,049 for each output. ``dropout`` scales the rates 0.2, 0.2,
    0.5, 0.5 and 0.5 of its five stages; 0 leaves dropout out.
    """
    channels = input_shape[0]
    convolutions = [
        *_stage(nn.Conv2d(channels, 64, 4), 0.2 * dropout),
        nn.MaxPool2d(2),
        *_stage(nn.Conv2d(64, 128, 3), 0.2 * dropout),
        nn.MaxPool2d(2),
        *_stage(nn.Conv2d(128, 256, 2), 0.5 * dropout),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]
    with torch.no_grad():
        features = nn.Sequential(*convolutions).eval()(torch.zeros(1, *input_shape)).shape[1]
    dense = [*_stage(nn.Linear(features, 2048), 0.5 * dropout), *_stage(nn.Linear(2048, 2048), 0.5 * dropout)]
    return HeadedNet(nn.Sequential(*convolutions, *dense).train(), 2048, head_sizes)


def _stage(layer: nn.Module, rate: float) -> list[nn.Module]:
    return [layer, nn.ReLU(), *([nn.Dropout(rate)] if rate > 0 else [])]


def resnet18(input_shape: Sequence[int], head_sizes: Sequence[int], width: int = 64, norm: Norm = "batch") -> HeadedNet:
    """Return ResNet18 for 32x32 images (He et al. 2016): a 3x3 stem without pooling, four stages of two blocks.

    A ``width`` of 64 gives 11.2M weights in the trunk, 51 gives 7.1M.
    """
    one_of("norm", norm, get_args(Norm))
    count("width", width)
    tasks = len(head_sizes)
    layers: list[nn.Module] = [
        nn.Conv2d(input_shape[0], width, 3, 1, 1, bias=norm == "none"),
        norm_layer(norm, width, tasks),
        nn.ReLU(),
    ]
    channels = width
    for stage in range(4):
        outputs = width * 2**stage
        for block in range(2):
            layers.append(ResidualBlock(channels, outputs, 2 if stage and not block else 1, norm, tasks))
            channels = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return HeadedNet(nn.Sequential(*layers), channels, head_sizes)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, tasks: int) -> None:
        super().__init__()
        bias = norm == "none"
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=bias)
        self.norm1 = norm_layer(norm, outputs, tasks)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=bias)
        self.norm2 = norm_layer(norm, outputs, tasks)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=bias), norm_layer(norm, outputs, tasks)
            )
        if norm == "none":  # nothing else would keep the sum of many branches from growing
            nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = F.relu(self.norm1(self.conv1(x)))
        shortcut: Tensor = self.shortcut(x)
        return F.relu(self.norm2(self.conv2(y)) + shortcut)


def norm_layer(kind: Norm, channels: int, tasks: int) -> nn.Module:
    """Return a normalisation of ``channels`` channels."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "task-batch":
        return TaskBatchNorm2d(channels, tasks)
    if kind == "group":
        groups = next(g for g in range(min(GROUPS, channels), 0, -1) if channels % g == 0)
        return nn.GroupNorm(groups, channels)
    return nn.Identity()


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
