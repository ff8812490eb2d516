"""The files in a tar or zip archive or a folder, one after another, in memory.

An archive may be hostile: names that lead out of it, links and absurd sizes are refused.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

MOST_BYTES_EACH = 1 << 28  # the largest official one, CIFAR-100's train.bin, has 154 million
MOST_BYTES = 1 << 33
MOST_MEMBERS = 2_000_000
DRIVE = re.compile(r"[A-Za-z]:")


class Budget:
    """Counts what an archive says it holds, and refuses too much before it is read."""

    def __init__(self, path: Path) -> None:
        self.path, self.members, self.bytes = path, 0, 0

    def take(self, name: str, size: int) -> None:
        """Count one more file."""
        self.members, self.bytes = self.members + 1, self.bytes + size
        if size > MOST_BYTES_EACH or self.bytes > MOST_BYTES or self.members > MOST_MEMBERS:
            raise ValueError(f"{self.path}: {name} is refused: the archive is absurdly large ({self.bytes:,} bytes)")


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and contents of the wanted files. In an archive all are checked, those that are not wanted too."""
    with _damage_named(path):
        for name, read in _opened(path):
            if wanted(name):
                yield name, read()


def names(path: Path) -> list[str]:
    """Return the names of all files."""
    with _damage_named(path):
        return [name for name, _ in _opened(path)]


def _opened(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    if path.is_dir():
        return _in_folder(path)
    return _in_zip(path) if zipfile.is_zipfile(path) else _in_tar(path)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Say in one sentence that an archive is damaged, whatever the library says."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError) as error:
        raise ValueError(f"{path} is damaged, or no archive: {error}") from error
    except OSError as error:  # gzip's own error for bytes that are not gzip has no errno
        if error.errno is not None:
            raise
        raise ValueError(f"{path} is damaged, or no archive: {error}") from error


def _in_tar(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    budget = Budget(path)
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            _harmless(path, member.name)
            if member.isdir():
                continue
            if not member.isreg():
                raise ValueError(f"{path}: {member.name} is a link or a device: refused")
            budget.take(member.name, member.size)
            file = cast("IO[bytes]", archive.extractfile(member))
            yield member.name, lambda file=file: file.read()  # type: ignore[misc]


def _in_zip(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    budget = Budget(path)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            _harmless(path, member.filename)
            if member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise ValueError(f"{path}: {member.filename} is a link or a device: refused")
            if member.flag_bits & 1:
                raise ValueError(f"{path}: {member.filename} is encrypted")
            budget.take(member.filename, member.file_size)
            yield member.filename, lambda member=member: archive.read(member)  # type: ignore[misc]


def _in_folder(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    budget = Budget(path)
    for parent, folders, files in os.walk(path):
        folders.sort()
        if links := [name for name in folders if os.path.islink(os.path.join(parent, name))]:
            raise ValueError(f"{Path(parent, links[0])} is a link to a folder: give the folder itself")
        for name in sorted(files):
            file = Path(parent, name)
            budget.take(str(file), file.stat().st_size)
            yield file.relative_to(path).as_posix(), file.read_bytes


def _harmless(path: Path, name: str) -> None:
    """Refuse a name that leads out of the archive."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or DRIVE.match(name):
        raise ValueError(f"{path}: {name} leads out of the archive: refused")
