"""Files that come into place whole or not at all, whatever lies in the way.

A file is written beside its place, under a name that ends in .part, flushed to the disk and renamed. What a kill left
under that name is removed. A link that somebody laid there is removed too, and never followed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, data: bytes, private: bool = False) -> None:
    """Put ``data`` at ``path`` whole or not at all, and let it reach the disk before anything else happens."""
    with replacing(path, private) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, private: bool = False) -> Iterator[BinaryIO]:
    """Open a new file, which takes the place of ``path`` once all is written.

    An old file keeps its permissions, and nobody else reads the new one before; where there is no old one, the new one
    is its owner's alone if ``private``.
    """
    scratch = scratch_of(path)
    try:
        scratch.unlink(missing_ok=True)
        mode = 0o600 if private or path.exists() else 0o666
        with open(scratch, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode)) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                _refuse_another(scratch, file)
                if path.exists():
                    shutil.copymode(path, scratch)  # who may read it does not change
                scratch.replace(path)
            except BaseException:  # Ctrl-C too
                scratch.unlink(missing_ok=True)
                raise
        _keep_name(path)
    except OSError as error:  # a full disk does not say which file it had no room for
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def scratch_of(path: Path) -> Path:
    """Return where a file is written before it is renamed."""
    return path.with_name(path.name + ".part")


def _refuse_another(scratch: Path, file: BinaryIO) -> None:
    """Refuse to rename a file that is not the one that was written."""
    if not os.path.samestat(os.fstat(file.fileno()), scratch.lstat()):
        raise OSError(f"{scratch} is not what was written: another process writes there at this moment")


def _keep_name(path: Path) -> None:
    """Let the new name, too, reach the disk."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
