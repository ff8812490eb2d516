"""Libraries that are kept between processes, in a folder of the user's own.

A library runs as whoever loads it. So it is loaded only from a file and a folder that are this user's and that nobody
else can write to, and only if it is whole: its name holds the SHA-256 of its content. Everything is done through the
folder's descriptor, so that nobody who may rename the folders above it can slip in another.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

DESCRIPTORS = Path("/proc/self/fd")
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Folder(NamedTuple):
    """An open folder."""

    path: Path
    descriptor: int


@contextmanager
def own_folder() -> Iterator[Folder]:
    """Open the folder of kept libraries; an OSError says why there is none to be trusted."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a path which is not absolute is to be ignored.
    path = (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "ucb" / "kernels"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _is_own(os.fstat(descriptor)):
            raise PermissionError(f"{path} is another user's, or others can write to it")
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def load(folder: Folder, key: str) -> ctypes.CDLL:
    """Load the library that is kept under ``key``; what is no whole one is removed."""
    for name in os.listdir(folder.descriptor):
        if not name.startswith(f"{key}-"):
            continue
        file = _opened(folder, name)
        if file is not None:
            # The very file that was looked at. It stays open, since the loader knows a library again by its path.
            return ctypes.CDLL(str(DESCRIPTORS / str(file) if DESCRIPTORS.is_dir() else folder.path / name))
        os.unlink(name, dir_fd=folder.descriptor)
    raise FileNotFoundError(f"{folder.path} has no library {key}")


def keep(folder: Folder, key: str, library: bytes) -> None:
    """Write a library under ``key``, whole or not at all: another process may do the same at this moment."""
    inside = folder.descriptor
    scratch = f"{secrets.token_hex(8)}.part"
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=inside)
    try:
        with open(file, "wb") as written:
            written.write(library)
            written.flush()
            os.fsync(file)
        os.rename(scratch, f"{key}-{_hash(library)}.so", src_dir_fd=inside, dst_dir_fd=inside)
    except BaseException:
        os.unlink(scratch, dir_fd=inside)
        raise


def _opened(folder: Folder, name: str) -> int | None:
    """Open a file that is the user's own and what its name says; None stands for any other."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder.descriptor)
    except OSError:  # such as a link
        return None
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and _is_own(status):
        with open(file, "rb", closefd=False) as content:
            if name.endswith(f"-{_hash(content.read())}.so"):
                return file
    os.close(file)
    return None


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & WRITABLE_BY_OTHERS


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
