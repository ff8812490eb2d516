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

from ucb.datasets.catalogue import IDX_NAMES, MNIST_MD5


class IdxFile(NamedTuple):
    """One of the four files in which MNIST was published: a short header, then one byte a pixel or label."""

    name: str
    header: int
    size: int
    md5: str


HEADERS = (16, 8, 16, 8)
SIZES = (47_040_016, 60_008, 7_840_016, 10_008)
IDX_FILES = tuple(IdxFile(*facts) for facts in zip(IDX_NAMES, HEADERS, SIZES, MNIST_MD5, strict=True))
"""Images and labels to train with, then those to test with."""

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
