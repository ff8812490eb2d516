"""The files in a tar or zip archive or a folder, one after another, in memory.

An archive may be hostile: names that lead out of it, links and absurd sizes are refused.
"""

from __future__ import annotations

import lzma
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ucb.storage import RefusedFileError, ceilings, open_checked, read_bytes

DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, NotImplementedError, OverflowError, UnicodeError),
)
"""What tarfile and zipfile say of a damaged archive."""
DRIVE = re.compile(r"[A-Za-z]:")


class Budget:
    """Counts what an archive says it holds, and refuses too much before it is read."""

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most, self.members, self.bytes = path, most, 0, 0

    def take(self, name: str, size: int) -> None:
        """Count one more file."""
        self.members, self.bytes = self.members + 1, self.bytes + size
        for what, found, most in (
            ("it has {:,} bytes", size, ceilings.MEMBER),
            ("{:,} bytes so far", self.bytes, self.most),
            ("{:,} files so far", self.members, ceilings.MEMBERS),
        ):
            if found > most:
                said = f"{what.format(found)}, and {most:,} are the most"
                raise ValueError(f"{self.path}: {name} is refused, as that is absurdly large: {said}")


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and contents of the wanted files. In an archive all are checked, those that are not wanted too."""
    with _name_damage(path):
        for name, read in _open(path):
            if wanted(name):
                yield name, read()


def names(path: Path) -> list[str]:
    """Return the names of all files."""
    with _name_damage(path):
        return [name for name, _ in _open(path)]


def _open(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    if path.is_dir():
        return _in_folder(path)
    budget = Budget(path, min(ceilings.unpacked(path.stat().st_size), ceilings.OFFICIAL))
    with open_checked(path, ceilings.OFFICIAL) as file:
        return _in_zip(path, budget) if zipfile.is_zipfile(file) else _in_tar(path, budget)


@contextmanager
def _name_damage(path: Path) -> Iterator[None]:
    """Say in one sentence that an archive is damaged, whatever the library says."""
    try:
        yield
    except RefusedFileError:
        raise
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # gzip's own error for other bytes has none
            raise
        raise ValueError(f"{path} is damaged, or no archive: {error}") from error


class _Member(tarfile.TarInfo):
    """A header of a tar archive. Of names, and of maps of sparse files, tarfile would read gigabytes at once."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and self.size > ceilings.NAME:
            raise tarfile.ReadError(f"a header has {self.size:,} bytes, and {ceilings.NAME:,} are the most")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]

    def _refuse(self, *_: object) -> None:
        raise tarfile.ReadError(f"{self.name} is a sparse file, which no official archive holds")

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse


def _in_tar(path: Path, budget: Budget) -> Iterator[tuple[str, Callable[[], bytes]]]:
    with (
        open_checked(path, ceilings.OFFICIAL) as file,
        tarfile.open(fileobj=file, mode="r|*", tarinfo=_Member) as archive,
    ):
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile would remember every one
            _refuse_escape(path, member.name)
            budget.take(member.name, member.size)
            if member.isdir():
                continue
            if not member.isreg():
                raise ValueError(f"{path}: {member.name} is a link or a device: refused")
            content = cast("IO[bytes]", archive.extractfile(member))
            yield member.name, lambda content=content: content.read()  # type: ignore[misc]


def _in_zip(path: Path, budget: Budget) -> Iterator[tuple[str, Callable[[], bytes]]]:
    with open_checked(path, ceilings.OFFICIAL) as file, zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            _refuse_escape(path, member.filename)
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
    budget = Budget(path, ceilings.OFFICIAL)
    for parent, folders, files in os.walk(path):
        folders.sort()
        if links := [name for name in folders if os.path.islink(os.path.join(parent, name))]:
            raise ValueError(f"{Path(parent, links[0])} is a link to a folder: give the folder itself")
        for name in sorted(files):
            file = Path(parent, name)
            budget.take(str(file), file.stat().st_size)
            yield file.relative_to(path).as_posix(), partial(read_bytes, file, ceilings.MEMBER)


def _refuse_escape(path: Path, name: str) -> None:
    """Refuse a name that leads out of the archive."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or DRIVE.match(name):
        raise ValueError(f"{path}: {name} leads out of the archive: refused")
