"""The idx format of MNIST: a short header, then one byte a pixel or label."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ucb.datasets.arrays import Arrays
from ucb.datasets.formats.members import MOST_BYTES_EACH
from ucb.datasets.formats.parsed import Parsed

GZIP, UNSIGNED_BYTES = b"\x1f\x8b", 8


def read_idx(files: Sequence[Path], classes: tuple[str, ...]) -> Parsed:
    """Read training images, training labels, test images and test labels, each gzipped or raw."""
    x_train, x_test = (idx_array(files[place], dimensions=3) for place in (0, 2))
    y_train, y_test = (idx_array(files[place], dimensions=1) for place in (1, 3))
    return Parsed(Arrays(x_train, y_train, x_test, y_test, classes))


def idx_array(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read one idx file."""
    content = _content(path)
    header = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, UNSIGNED_BYTES, dimensions)) or len(content) < header:
        raise ValueError(f"{path} is not an idx file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise ValueError(f"{path} is damaged: {len(content) - header} bytes where {math.prod(shape)} should be")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            content = file.read(MOST_BYTES_EACH + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if len(content) > MOST_BYTES_EACH:
        raise ValueError(f"{path} is refused: it is absurdly large")
    return content
