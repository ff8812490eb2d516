"""The AlexNet-like net of the paper's baselines for 32x32 images (Serra et al. 2018), one linear head a task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ucb.nets.heads import HeadedNet


def alexnet(input_shape: Sequence[int], head_sizes: Sequence[int], dropout: float = 1.0) -> HeadedNet:
    """Return the net: 6,503,872 parameters for 3x32x32 inputs, and 2,049 for each output.

    ``dropout`` scales the rates 0.2, 0.2, 0.5, 0.5 and 0.5 of its five stages; 0 leaves dropout out.
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
