"""SVHN's cropped digits: MATLAB files with X [32, 32, 3, n] and y [n, 1], in which 10 stands for the digit 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ucb.datasets.arrays import Arrays, Images, Labels
from ucb.datasets.formats.mat import arrays_in
from ucb.datasets.formats.parsed import Parsed
from ucb.storage import ceilings, read_bytes


def read_svhn(files: Sequence[Path], classes: tuple[str, ...]) -> Parsed:
    """Read the training and the test file."""
    train, test = files
    return Parsed(Arrays(*_digits(train), *_digits(test), classes))


def _digits(path: Path) -> tuple[Images, Labels]:
    content = read_bytes(path, ceilings.OFFICIAL)
    try:
        found = dict(arrays_in(content, ceilings.unpacked(len(content))))
        x, y = (found.get(name, np.empty(0)) for name in ("X", "y"))
        if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8:
            raise ValueError(f"X is {x.dtype} {list(x.shape)}, not uint8 [32, 32, 3, n]")
        if y.shape != (x.shape[3], 1):
            raise ValueError(f"y is {list(y.shape)}, not {[x.shape[3], 1]}")
    except ValueError as error:
        raise ValueError(f"{path} is not a file of SVHN's cropped digits, or damaged: {error}") from error
    labels = y[:, 0]
    if not np.isin(labels, range(1, 11)).all():
        raise ValueError(f"{path}: y must be whole numbers from 1 to 10")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), (labels % 10).astype(np.uint8)
