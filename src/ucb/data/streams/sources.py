"""Data sets in memory, from which tasks are made: your own, the MNIST of the package, and image data sets."""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from ucb.checks import finite
from ucb.data.cache import load
from ucb.data.readers.arrays import Arrays
from ucb.data.streams.tasks import Preparation, Resident

Array = Tensor | npt.NDArray[Any]

SIDE = 32
DIGITS = tuple("0123456789")
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


class Source:
    """Arrays or tensors for training and testing, how they are prepared, and what their classes are called.

    ``x`` is uint8 (pixels) or floating point, ``y`` whole numbers. ``classes`` names them in the order of their labels;
    left out, a class is called by its label. Memory is shared with what is given, not copied.
    """

    def __init__(
        self,
        name: str,
        x_train: Array,
        y_train: Array,
        x_test: Array,
        y_test: Array,
        prepare: Preparation | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.prepare = Preparation() if prepare is None else prepare
        self.y_train, self.y_test = check_labels(f"{name}: y_train", y_train), check_labels(f"{name}: y_test", y_test)
        train, test = check_inputs(f"{name}: x_train", x_train), check_inputs(f"{name}: x_test", x_test)
        for part, x, y in (("train", train, self.y_train), ("test", test, self.y_test)):
            if len(x) != len(y):
                raise ValueError(f"{name}: x_{part} has {len(x)} examples, y_{part} {len(y)} labels")
            if len(x) == 0:
                raise ValueError(f"{name}: there are no examples to {part}")
        if train.shape[1:] != test.shape[1:]:
            raise ValueError(
                f"{name}: an example is {tuple(train.shape[1:])} in training, {tuple(test.shape[1:])} in testing"
            )
        self.x_train, self.x_test = Resident(train), Resident(test)
        self.labels: tuple[int, ...] = tuple(self.y_train.unique().tolist())
        unknown = sorted(set(self.y_test.unique().tolist()) - set(self.labels))
        if unknown:
            raise ValueError(f"{name}: the test labels {unknown} do not occur in training")
        self.classes = tuple(str(label) for label in self.labels) if classes is None else tuple(classes)
        if len(self.classes) != len(self.labels):
            raise ValueError(f"{name}: {len(self.classes)} names for {len(self.labels)} classes")


def check_inputs(which: str, given: Array) -> Tensor:
    """Return inputs as a tensor, if they are pixels or finite numbers."""
    x = _tensor(which, given)
    if x.dtype == torch.float64:  # what NumPy makes by default, and nets are rarely made of
        x = x.to(torch.get_default_dtype())
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise TypeError(f"{which} must be uint8 or floating point, not {x.dtype}")
    return finite(which, x) if x.is_floating_point() else x


def check_labels(which: str, given: Array) -> Tensor:
    """Return labels as a tensor, if they are whole numbers, one for each example."""
    y = _tensor(which, given)
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool or y.dim() != 1:
        raise TypeError(f"{which} must be whole numbers in one dimension, not {y.dtype} of {tuple(y.shape)}")
    return y.to("cpu", torch.int64)


def _tensor(name: str, given: Array) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach()
    if not isinstance(given, np.ndarray):
        raise TypeError(f"{name} must be an array or a tensor, not {type(given).__name__}")
    return torch.from_numpy(given if given.flags.writeable else given.copy())


IDX_SIZES = [47_040_016, 60_008, 7_840_016, 10_008]
IMAGE_HEADER, LABEL_HEADER = 16, 8
"""Bytes of the four files in which MNIST was published: a short header, then one byte a pixel or label."""
# What `python tools/pack_mnist.py` printed when it wrote the file.
PACKED_SHA256 = "3f7cce83a0d959f2cecc82ed8d90ad436ce8c787693c74e34d12291b12ce2148"


class MNIST(NamedTuple):
    """Digits as uint8 [n, 1, 28, 28], and their labels as int64 [n]."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


def find_packed_file() -> Path:
    """Return where the packed digits lie."""
    return Path(str(files("ucb") / "data" / "mnist.xz"))


def unpack(path: Path) -> MNIST:
    """Read a packed file: the four idx files one after the other, compressed as one."""
    packed = path.read_bytes()
    if hashlib.sha256(packed).hexdigest() != PACKED_SHA256:
        raise ValueError(f"{path} is damaged (its SHA-256 is not the expected one): install ucb again")
    everything = torch.frombuffer(bytearray(lzma.decompress(packed)), dtype=torch.uint8)
    x_train, y_train, x_test, y_test = everything.split(IDX_SIZES)
    x_train, x_test = (x[IMAGE_HEADER:].view(-1, 1, 28, 28) for x in (x_train, x_test))
    return MNIST(x_train, y_train[LABEL_HEADER:].long(), x_test, y_test[LABEL_HEADER:].long())


@cache
def load_mnist() -> MNIST:
    """Return the digits. They are read once and shared by all callers, so do not write into them."""
    return unpack(find_packed_file())


@cache
def image_source(name: str) -> Source:
    """Return a data set as 3 x 32 x 32 images, so that all streams of a process share one copy."""
    if name == "mnist":
        x_train, y_train, x_test, y_test = (part.numpy() for part in load_mnist())
        arrays = Arrays(x_train, y_train, x_test, y_test, DIGITS)
    else:
        arrays = load(name)
    train, test = as_images(arrays.x_train), as_images(arrays.x_test)
    prepare = PREPARATIONS.get(name) or measure_pixels(train)
    return Source(name, train, arrays.y_train, test, arrays.y_test, prepare, arrays.class_names)


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


def measure_pixels(x: Tensor) -> Preparation:
    """Return mean and standard deviation of the training images' channels, for data sets without published ones."""
    pixels = x[:: max(1, len(x) // 5000)].double() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp_min(1e-3)
    return Preparation(tuple(mean.tolist()), tuple(std.tolist()))
