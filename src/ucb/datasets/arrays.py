"""One data set as arrays in one file: checked when read, whole when written."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ucb.datasets.npz import opened_npz
from ucb.storage import replacing

Images = npt.NDArray[np.uint8]
DAMAGE = (ValueError, TypeError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)
Labels = npt.NDArray[Any]
KEYS = ("x_train", "y_train", "x_test", "y_test", "class_names")


class Arrays(NamedTuple):
    """Images as uint8 [n, height, width] or [n, height, width, 3], and their labels, which count in ``class_names``."""

    x_train: Images
    y_train: Labels
    x_test: Images
    y_test: Labels
    class_names: tuple[str, ...]

    def __str__(self) -> str:
        shape = "x".join(str(side) for side in self.x_train.shape[1:])
        return f"{len(self.x_train):,} + {len(self.x_test):,} images {shape}, {len(self.class_names)} classes"


def checked(where: Path, arrays: Arrays) -> Arrays:
    """Return the arrays if they fit together; what does not is said in one sentence that names the file."""
    for part, x, y in (("train", arrays.x_train, arrays.y_train), ("test", arrays.x_test, arrays.y_test)):
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] != 3):
            raise ValueError(
                f"{where}: x_{part} must be uint8 [n, height, width] or [n, height, width, 3], "
                f"not {x.dtype} {list(x.shape)}"
            )
        if y.dtype.kind not in "ui" or y.ndim != 1:
            raise ValueError(f"{where}: y_{part} must be whole numbers [n], not {y.dtype} {list(y.shape)}")
        if len(x) != len(y):
            raise ValueError(f"{where}: x_{part} has {len(x)} images, y_{part} {len(y)} labels")
        if x.size == 0:
            raise ValueError(f"{where}: x_{part} is empty")
        if int(y.min()) < 0 or int(y.max()) >= len(arrays.class_names):
            labels = f"goes from {y.min()} to {y.max()}, but there are {len(arrays.class_names)} class names"
            raise ValueError(f"{where}: y_{part} {labels}")
    if arrays.x_train.shape[1:] != arrays.x_test.shape[1:]:
        shapes = f"{list(arrays.x_train.shape[1:])} in training, {list(arrays.x_test.shape[1:])} in testing"
        raise ValueError(f"{where}: an image is {shapes}")
    return arrays


def read_arrays(path: Path) -> Arrays:
    """Read an array file. Nothing in it is ever unpickled."""
    try:
        with opened_npz(path) as file:
            if missing := [key for key in KEYS if key not in file.names]:
                raise ValueError(f"{', '.join(missing)} is missing")
            found = {key: file.read(key) for key in KEYS}
    except DAMAGE as error:
        raise ValueError(f"{path} is not an array file of ucb, or damaged: {error}") from error
    names = found.pop("class_names")
    if names.dtype.kind != "U" or names.ndim != 1:
        raise ValueError(f"{path}: class_names must be text [classes], not {names.dtype} {list(names.shape)}")
    return checked(path, Arrays(**found, class_names=tuple(str(name) for name in names)))


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an array file: whole, or not at all. It is not compressed, so that it opens quickly."""
    checked(path, arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays._asdict() | {"class_names": np.array(arrays.class_names)})
