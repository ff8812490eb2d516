"""SVHN's cropped digits: MATLAB files with X [32, 32, 3, n] and y [n, 1], in which 10 stands for the digit 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ucb.datasets.arrays import Arrays, Images, Labels
from ucb.datasets.extras import extra
from ucb.datasets.formats.members import MOST_BYTES
from ucb.datasets.formats.parsed import Parsed


def read_svhn(files: Sequence[Path], classes: tuple[str, ...]) -> Parsed:
    """Read the training and the test file."""
    train, test = files
    return Parsed(Arrays(*_digits(train), *_digits(test), classes))


def _digits(path: Path) -> tuple[Images, Labels]:
    io = extra("scipy.io", "SciPy", "reading SVHN's .mat files")
    try:
        shapes = {name: shape for name, shape, _ in io.whosmat(path)}  # before any of it is in memory
        if len(shapes.get("X", ())) != 4 or shapes["X"][:3] != (32, 32, 3) or np.prod(shapes["X"]) > MOST_BYTES:
            raise ValueError(f"X is {shapes.get('X', 'missing')}, not (32, 32, 3, n)")
        if shapes.get("y") != (shapes["X"][3], 1):
            raise ValueError(f"y is {shapes.get('y', 'missing')}, not {(shapes['X'][3], 1)}")
        found = io.loadmat(path, variable_names=("X", "y"))
    except FileNotFoundError:
        raise
    except Exception as error:  # of a damaged file SciPy may say anything
        raise ValueError(f"{path} is not a file of SVHN's cropped digits, or damaged: {error}") from error
    pixels, labels = found["X"], found["y"][:, 0]
    if pixels.dtype != np.uint8 or not np.isin(labels, range(1, 11)).all():
        raise ValueError(f"{path}: X must be uint8 and y whole numbers from 1 to 10")
    return np.ascontiguousarray(pixels.transpose(3, 0, 1, 2)), (labels % 10).astype(np.uint8)
