"""The 70,000 MNIST digits that come with the package."""

from __future__ import annotations

import hashlib
import lzma
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor


class IdxFile(NamedTuple):
    """One of the four files in which MNIST was published: a short header, then one byte a pixel or label."""

    name: str
    header: int
    size: int
    md5: str


IDX_FILES = (
    IdxFile("train-images-idx3-ubyte", 16, 47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
    IdxFile("train-labels-idx1-ubyte", 8, 60_008, "a25bea736e30d166cdddb491f175f624"),
    IdxFile("t10k-images-idx3-ubyte", 16, 7_840_016, "2646ac647ad5339dbf082846283269ea"),
    IdxFile("t10k-labels-idx1-ubyte", 8, 10_008, "27ae3e4e09519cfbb04c329615203637"),
)

# What `python -m ucb.stream.pack_mnist` printed when it wrote the file.
PACKED_SHA256 = "3f7cce83a0d959f2cecc82ed8d90ad436ce8c787693c74e34d12291b12ce2148"


class MNIST(NamedTuple):
    """Digits as uint8 [n, 1, 28, 28], and their labels as int64 [n]."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


def packed_path() -> Path:
    """Return where the packed digits lie."""
    return Path(str(files("ucb") / "data" / "mnist.xz"))


def unpack(path: Path) -> MNIST:
    """Read a packed file: the four idx files one after the other, compressed as one."""
    packed = path.read_bytes()
    if hashlib.sha256(packed).hexdigest() != PACKED_SHA256:
        raise ValueError(f"{path} is damaged (its SHA-256 is not the expected one): install ucb again")
    everything = torch.frombuffer(bytearray(lzma.decompress(packed)), dtype=torch.uint8)
    parts = everything.split([file.size for file in IDX_FILES])
    x_train, y_train, x_test, y_test = (part[file.header :] for part, file in zip(parts, IDX_FILES, strict=True))
    return MNIST(x_train.view(-1, 1, 28, 28), y_train.long(), x_test.view(-1, 1, 28, 28), y_test.long())


@cache
def load_mnist() -> MNIST:
    """Return the digits. They are read once and shared by all callers, so do not write into them."""
    return unpack(packed_path())
