"""Files of our own that are opened where they lie: locks and logs. No link is followed, and no pipe waited for."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ucb.storage.reading import RefusedFileError, closed_if_refused, refuse_odd


class HeldError(BlockingIOError):
    """Another process holds the lock."""


def appending(path: Path) -> BinaryIO:
    """Open a file of our own to write at its end; it is made if there is none, and nothing in it is lost."""
    return open(path, "ab", opener=_own)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock at ``path`` for this process alone. The file stays, unless the holder removes it."""
    while True:
        file = appending(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed it when they left: a lock without a name holds nobody back.
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                break
        except BlockingIOError:
            file.close()
            raise HeldError(errno.EWOULDBLOCK, "another process holds it", str(path)) from None
        except FileNotFoundError:
            pass
        file.close()
    with file:
        yield


def _own(path: str, flags: int) -> int:
    try:
        number = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a pipe that nobody reads
            raise RefusedFileError(f"{path} is a link or a pipe, and ucb writes to neither there: remove it") from None
        raise
    with closed_if_refused(number):
        refuse_odd(path, os.fstat(number))
    return number
