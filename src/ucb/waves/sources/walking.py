"""All images below a folder, whatever links it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ucb.datasets.formats.images import is_image
from ucb.waves.sources.examples import Skipped
from ucb.waves.sources.words import counted, shown

Identity = tuple[int, int]
ADDED_BY_ARCHIVERS = "__MACOSX"


def identity(path: str) -> Identity:
    """Return what a folder is on its disk, by whatever name it was reached."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def is_hidden(name: str) -> bool:
    """Whether a file or folder is not meant to be seen."""
    return name.startswith(".") or name == ADDED_BY_ARCHIVERS


def entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder and not hidden, in an order that does not depend on the disk."""
    with os.scandir(folder) as found:
        return sorted((entry for entry in found if not is_hidden(entry.name)), key=lambda entry: entry.name)


class Walk:
    """Images found below folders; each folder is entered once, so links that lead in circles do no harm.

    ``closed`` are folders that links may not lead to. With ``root`` names are relative to it.
    """

    def __init__(self, closed: Iterable[Identity] = (), root: str | None = None) -> None:
        self.images: list[str] = []
        self.others = 0
        self.skipped: list[Skipped] = []
        self.root = root
        self._entered = set(closed)

    def name(self, path: str) -> str:
        """Return what a file is called in messages."""
        return shown(path if self.root is None else os.path.relpath(path, self.root).replace(os.sep, "/"))

    def remarks(self) -> list[str]:
        """Say how many files are no images."""
        if not self.others:
            return []
        return [counted(self.others, "file that is no image is left out", "files that are no images are left out")]

    def below(self, folder: str) -> None:
        """Gather the images below a folder, at any depth."""
        waiting = [folder]
        while waiting:
            inside = waiting.pop()
            try:
                self._entered.add(identity(inside))
                found = entries(inside)
            except OSError as error:
                self.skipped.append(Skipped(self.name(inside), f"the folder cannot be read: {error.strerror}"))
                continue
            folders = [entry.path for entry in found if self.take(entry.path)]
            waiting += reversed(folders)

    def take(self, path: str) -> bool:
        """Count a file; return whether it is a folder, and one that has not been entered yet."""
        if os.path.isdir(path):
            where = identity(path)
            new = where not in self._entered
            self._entered.add(where)
            return new
        if not is_image(os.path.basename(path)):
            self.others += 1
        elif os.path.isfile(path):
            self.images.append(path)
        else:
            self.skipped.append(Skipped(self.name(path), "it is a broken link or no plain file"))
        return False
