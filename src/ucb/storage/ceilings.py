"""How much of each kind of file is read, in bytes unless it says otherwise; docs/learn-from-your-data.md has the table.

Each is far above what real work needs. What is larger is refused before it is read, and so is what has no room in the
memory of this machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

JSON = 1 << 26
"""A configuration, a result, a recipe, the trials of a search: Python takes twenty times as much for it."""
CHECKPOINT = 1 << 34
"""A run's or a learner's state, or progress of a `learn`."""
MODEL = 1 << 33
HEADER = 64 << 20
"""Of a model file: all that it holds beside tensors."""
IMAGE = 1 << 29
PIXELS = 1 << 26
"""Of one image as it is decoded; a JPEG may be decoded smaller than it is."""
TABLE = 1 << 36
LINE = 1 << 24
"""Characters of a row of a text table."""
COLUMNS = 100_000
UNUSABLE = 1_000_000
"""Rows or images of one wave that cannot be read: they are listed."""
OFFICIAL = 1 << 33
"""A data set's official file, on disk."""
MEMBER = 1 << 28
"""One file of an archive, unpacked; the largest official one, CIFAR-100's train.bin, has 154 million."""
MEMBERS = 2_000_000
"""Files of an archive or a folder."""
NAME = 1 << 20
"""What a tar archive says of one member's name and times."""
UNPACKED, RATIO = 1 << 30, 20


def unpacked(packed: int) -> int:
    """Return what a compressed file of that many bytes may hold: 1 GiB, or twenty times its own size."""
    return max(UNPACKED, RATIO * packed)


def memory() -> int:
    """Return the bytes of memory that this process may still take, as far as the system tells."""
    return min(_available(), _granted())


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return sys.maxsize


def _granted() -> int:
    """Return what a container may take in all."""
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # no cgroup, or "max"
        return sys.maxsize
