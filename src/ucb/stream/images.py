"""Image data sets in one form, 3 x 32 x 32, as the paper's CIFAR and eight-data-set experiments take them."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from ucb.datasets import Arrays, load
from ucb.stream.mnist import load_mnist
from ucb.stream.preparation import Preparation
from ucb.stream.source import Source

SIDE = 32
CIFAR = Preparation(mean=(125.3 / 255, 123.0 / 255, 113.9 / 255), std=(63.0 / 255, 62.1 / 255, 66.7 / 255))
PREPARATIONS = {
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "mnist": Preparation(mean=(0.1,), std=(0.2752,)),
    "svhn": Preparation(mean=(0.4377, 0.4438, 0.4728), std=(0.198, 0.201, 0.197)),
    "fashion_mnist": Preparation(mean=(0.2190,), std=(0.3318,)),
    "traffic_signs": Preparation(mean=(0.3398, 0.3117, 0.3210), std=(0.2755, 0.2647, 0.2712)),
    "facescrub100": Preparation(mean=(0.5163, 0.5569, 0.4695), std=(0.2307, 0.2272, 0.2479)),
    "notmnist": Preparation(mean=(0.4254,), std=(0.4501,)),
}
"""Mean and standard deviation of pixels / 255, of each channel or of all."""


@cache
def image_source(name: str) -> Source:
    """Return a data set as 3 x 32 x 32 images, so that all streams of a process share one copy."""
    arrays = _arrays(name)
    x_train, x_test = as_images(arrays.x_train), as_images(arrays.x_test)
    prepare = PREPARATIONS.get(name) or measured(x_train)
    return Source(name, x_train, arrays.y_train, x_test, arrays.y_test, prepare, arrays.class_names)


def _arrays(name: str) -> Arrays:
    if name == "mnist":
        digits = load_mnist()
        x_train, y_train, x_test, y_test = (part.numpy() for part in digits)
        return Arrays(x_train, y_train, x_test, y_test, tuple(str(digit) for digit in range(10)))
    return load(name)


def as_images(x: npt.NDArray[np.uint8]) -> Tensor:
    """Return [n, 3, 32, 32]: smaller images get a border of zeros, grey ones are repeated over the channels."""
    images = torch.from_numpy(x if x.flags.writeable else x.copy())
    if images.dim() == 4 and images.shape[1] == 1:
        images = images.squeeze(1)
    images = images.permute(0, 3, 1, 2) if images.dim() == 4 else images.unsqueeze(1)
    height, width = (SIDE - side for side in images.shape[2:])
    if height < 0 or width < 0:
        raise ValueError(f"images of {tuple(images.shape[2:])} pixels are larger than {SIDE} x {SIDE}")
    images = pad(images, (width // 2, width - width // 2, height // 2, height - height // 2))
    return images.expand(-1, 3, -1, -1).contiguous()


def measured(x: Tensor) -> Preparation:
    """Return mean and standard deviation of the training images' channels, for data sets without published ones."""
    pixels = x[:: max(1, len(x) // 5000)].double() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp_min(1e-3)
    return Preparation(tuple(mean.tolist()), tuple(std.tolist()))
