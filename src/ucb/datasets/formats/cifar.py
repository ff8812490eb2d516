"""CIFAR's binary version: records of one label (CIFAR-100: a coarse, then a fine one) and 3072 bytes of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ucb.datasets.arrays import Arrays, Images, Labels
from ucb.datasets.formats.members import members, names
from ucb.datasets.formats.parsed import Parsed

PIXELS = 3 * 32 * 32
TRAIN_10, TEST_10 = tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"
TRAIN_100, TEST_100 = ("train.bin",), "test.bin"
PICKLES = {"data_batch_1", "test_batch", "batches.meta", "train", "test", "meta"}


def read_cifar(files: Sequence[Path], classes: tuple[str, ...]) -> Parsed:
    """Read CIFAR-10 or, when there are 100 classes, CIFAR-100 with its fine labels."""
    (path,) = files
    fine = len(classes) == 100
    train, test = (TRAIN_100, TEST_100) if fine else (TRAIN_10, TEST_10)
    found = {_last(name): content for name, content in members(path, lambda name: _last(name) in {*train, test})}
    missing = [name for name in (*train, test) if name not in found]
    if missing:
        if PICKLES & {_last(name) for name in names(path)}:
            stem = f"cifar-{len(classes)}"
            raise ValueError(
                f"{path} is the Python version, made of pickles, which are not read: "
                f"fetch the binary version, {stem}-binary.tar.gz"
            )
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    labels = 2 if fine else 1
    parts = [_records(path, name, found[name], labels) for name in train]
    x_train, y_train = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Parsed(Arrays(x_train, y_train, *_records(path, test, found[test], labels), classes))


def _records(path: Path, name: str, content: bytes, labels: int) -> tuple[Images, Labels]:
    if not content or len(content) % (labels + PIXELS):
        raise ValueError(f"{path}: {name} is damaged: {len(content)} bytes are no whole number of records")
    records = np.frombuffer(content, np.uint8).reshape(-1, labels + PIXELS)
    pixels = records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), records[:, labels - 1].copy()


def _last(name: str) -> str:
    return PurePosixPath(name).name
