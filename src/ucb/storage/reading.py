"""Reading a file that somebody gave: a plain one, no larger than its kind may be, and with room in memory.

A pipe would be waited for for ever, a device such as /dev/zero has no end, and a sparse file takes more memory than
disk. Whoever opens a file asks what it is once it is open, so that nobody can exchange it in between.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from ucb.storage import ceilings

CHUNK = 1 << 20


class RefusedFileError(OSError):
    """A file that is not read: it is no plain one, or larger than its kind may be."""


def opened(path: str | Path, most: int) -> BufferedReader:
    """Open a plain file of at most ``most`` bytes for reading."""

    def harmless(name: str, flags: int) -> int:
        number = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)  # a pipe that nobody writes to would block
        with closed_if_refused(number):
            refuse_odd(path, os.fstat(number))
            if (size := os.fstat(number).st_size) > most:
                raise RefusedFileError(f"{path} has {size:,} bytes, and ucb reads {most:,} of such a file at most")
        return number

    return open(path, "rb", opener=harmless)


def read_bytes(path: str | Path, most: int) -> bytes:
    """Return what a plain file of at most ``most`` bytes holds."""
    with opened(path, most) as file:
        size, room = os.fstat(file.fileno()).st_size, ceilings.memory()
        if size > room:
            raise RefusedFileError(f"{path} has {size:,} bytes, and this machine has memory for {room:,} more")
        content = file.read(size)
        while len(content) <= most and (more := file.read(CHUNK)):  # files of the system say that they have nothing
            content += more
    if len(content) > most:
        raise RefusedFileError(f"{path} is larger than {most:,} bytes, the most that ucb reads of such a file")
    return content


def read_json(path: str | Path) -> Any:
    """Return the JSON of a file. A ValueError says why it holds none, and leaves naming the file to whoever asks."""
    try:
        return json.loads(read_bytes(path, ceilings.JSON))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def refuse_odd(path: str | Path, status: os.stat_result) -> None:
    """Refuse what is no plain file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise RefusedFileError(f"{path} is a pipe or a device, no plain file")


@contextmanager
def closed_if_refused(number: int) -> Iterator[None]:
    """Close a file that was opened to look at it, if the look finds a fault."""
    try:
        yield
    except BaseException:
        os.close(number)
        raise
