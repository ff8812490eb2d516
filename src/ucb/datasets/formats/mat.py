"""Arrays of numbers in a MATLAB file of version 5: tagged elements, most of them compressed.

SciPy reads these too, but damaged ones can crash it, and whoever runs it.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

HEADER, MARK = 128, b"\0\1IM"
"""The version, and how numbers are stored: their first byte is the least, as on all machines of today."""
TEXT, WHOLE, FLAGS, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
COMPLEX = 1 << 11


def arrays_in(content: bytes, most: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield names and arrays; a ValueError says what is wrong, also where all of them unpack to more than ``most``."""
    if content[HEADER - 4 : HEADER] != MARK:
        raise ValueError("it is no MATLAB file of version 5")
    place = HEADER
    while place < len(content):
        kind, part, place = _element(memoryview(content), place)
        if kind == COMPRESSED:
            part = memoryview(_inflated(part, most))
            most -= len(part)
            kind, part, _ = _element(part, 0)
        if kind != MATRIX:
            raise ValueError(f"it holds an element of type {kind}, which is no array")
        yield _array(part)


def _element(content: memoryview, place: int) -> tuple[int, memoryview, int]:
    """Return the type and the data of the element at a place, and where the next one begins."""
    if len(content) < place + 8:
        raise ValueError("it is cut short")
    kind, size = struct.unpack_from("<II", content, place)
    if kind >> 16:  # up to four bytes stand in the tag itself
        kind, size, start, after = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        if size > 4:
            raise ValueError("it has a tag of no known form")
    else:
        start = place + 8
        after = start + size + (0 if kind == COMPRESSED else -size % 8)
    if len(content) < start + size:
        raise ValueError("it is cut short")
    return kind, content[start : start + size], after


def _inflated(part: memoryview, most: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(part, most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(found) > most:
        raise ValueError(f"it unpacks to more than the {most:,} bytes that are the most for it")
    if not inflater.eof:
        raise ValueError("it is cut short")
    return found


def _array(content: memoryview) -> tuple[str, npt.NDArray[Any]]:
    """Return name and values of an array: flags, sides, name and numbers, which run along the first side first."""
    parts, place = list[tuple[int, memoryview]](), 0
    while len(parts) < 4:
        kind, part, place = _element(content, place)
        parts.append((kind, part))
    (flags, flag), (sides, side), (text, name), (kind, values) = parts
    if (flags, sides, text) != (FLAGS, WHOLE, TEXT) or len(flag) != 8 or len(side) % 4 or kind not in NUMBERS:
        raise ValueError("it holds something else than arrays of numbers")
    if struct.unpack_from("<I", flag)[0] & COMPLEX:
        raise ValueError("it holds complex numbers")
    shape = struct.unpack(f"<{len(side) // 4}i", side)
    dtype = np.dtype(NUMBERS[kind])
    if min(shape, default=-1) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"it holds {len(values):,} bytes for an array {list(shape)} of {dtype}")
    return bytes(name).decode("latin-1"), np.frombuffer(values, dtype).reshape(shape, order="F")
