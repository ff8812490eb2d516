"""SVHN's cropped digits: MATLAB files with X [32, 32, 3, n] and y [n, 1], in which 10 stands for the digit 0."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ucb.datasets.arrays import Arrays, Images, Labels
from ucb.datasets.extras import extra
from ucb.datasets.formats.parsed import Parsed
from ucb.storage import RefusedFileError, ceilings, opened


def read_svhn(files: Sequence[Path], classes: tuple[str, ...]) -> Parsed:
    """Read the training and the test file."""
    train, test = files
    return Parsed(Arrays(*_digits(train), *_digits(test), classes))


def _digits(path: Path) -> tuple[Images, Labels]:
    io = extra("scipy.io", "SciPy", "reading SVHN's .mat files")
    with opened(path, ceilings.OFFICIAL) as file:
        most = ceilings.unpacked(os.fstat(file.fileno()).st_size)
        try:
            # Shapes and types, before any of it is in memory.
            found = {name: (shape, kind) for name, shape, kind in io.whosmat(file)}
            shape, kind = found.get("X", ((), "missing"))
            if len(shape) != 4 or shape[:3] != (32, 32, 3) or kind != "uint8":
                raise ValueError(f"X is {kind} {shape}, not uint8 (32, 32, 3, n)")
            if found.get("y", [()])[0] != (shape[3], 1):
                raise ValueError(f"y is {found.get('y', 'missing')}, not {(shape[3], 1)}")
            if math.prod(shape) > most:
                said = f"unpacks to {math.prod(shape):,} bytes, and {most:,} are the most for it"
                raise RefusedFileError(f"{path} {said}")
            file.seek(0)
            values = io.loadmat(file, variable_names=("X", "y"))
            pixels, labels = values["X"], values["y"][:, 0]
        except RefusedFileError:
            raise
        except Exception as error:  # of a damaged file SciPy may say anything
            raise ValueError(f"{path} is not a file of SVHN's cropped digits, or damaged: {error}") from error
    if pixels.dtype != np.uint8 or pixels.shape != shape or not np.isin(labels, range(1, 11)).all():
        raise ValueError(f"{path}: X must be uint8 and y whole numbers from 1 to 10")
    return np.ascontiguousarray(pixels.transpose(3, 0, 1, 2)), (labels % 10).astype(np.uint8)
