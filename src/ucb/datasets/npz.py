"""The arrays of an .npz file, each asked for what it says of itself before any of it is read. Nothing is unpickled."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ucb.storage import RefusedFileError, ceilings, opened

NPY = ".npy"


class Npz:
    """An open .npz file. Its arrays may take up as much together as its size on the disk allows, and memory has."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, size: int) -> None:
        self.path, self._archive = path, archive
        self._most, self._taken = min(ceilings.unpacked(size), ceilings.memory()), 0
        self._members = {name.removesuffix(NPY): name for name in archive.namelist()}

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return an array, if the file holds as much as it promises and that is not too much."""
        member = self._members[name]
        with self._archive.open(member) as file:
            try:
                version = np.lib.format.read_magic(file)
            except ValueError:
                raise ValueError(f"{name} is no array") from None
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            if dtype.hasobject:
                raise ValueError(f"{name} holds objects, which could run code")
            promised = dtype.itemsize * math.prod(int(side) for side in shape)
            if promised + file.tell() != self._archive.getinfo(member).file_size:
                raise ValueError(f"{name} is not as long as it says")
        self._taken += promised
        if self._taken > self._most:
            raise RefusedFileError(
                f"{self.path} unpacks to {self._taken:,} bytes and more, and {self._most:,} are the most for it"
            )
        with self._archive.open(member) as file:
            found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return found


@contextmanager
def opened_npz(path: Path) -> Iterator[Npz]:
    """Open an .npz file; of a damaged one numpy and zipfile may say anything."""
    with opened(path, ceilings.TABLE) as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is a single array or something else, and holds no named arrays")
        with zipfile.ZipFile(file) as archive:
            yield Npz(path, archive, os.fstat(file.fileno()).st_size)
