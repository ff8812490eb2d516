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
from ucb.datasets.formats.parsed import Parsed
from ucb.storage import ceilings, opened

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
    try:
        with opened(path, ceilings.MEMBER) as file:
            zipped = file.read(2) == GZIP
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if zipped else file).read(ceilings.MEMBER + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if len(content) > ceilings.MEMBER:
        raise ValueError(f"{path} is absurdly large: it unpacks to more than {ceilings.MEMBER:,} bytes")
    return content
