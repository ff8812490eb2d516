"""ResNet18 for 32x32 images (He et al. 2016): a 3x3 stem without pooling, four stages of two blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes.checks import count, one_of
from ucb.nets.heads import HeadedNet
from ucb.nets.norms import Norm, norm_layer


class Block(nn.Module):
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


def resnet18(input_shape: Sequence[int], head_sizes: Sequence[int], width: int = 64, norm: Norm = "batch") -> HeadedNet:
    """Return the net; a ``width`` of 64 gives 11.2M weights in the trunk, 51 gives 7.1M."""
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
            layers.append(Block(channels, outputs, 2 if stage and not block else 1, norm, tasks))
            channels = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return HeadedNet(nn.Sequential(*layers), channels, head_sizes)
