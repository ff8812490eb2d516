"""Image files in folders: all images below a folder, whatever links it holds, folders of class folders, and patterns.

Files are decoded when they are asked for: no more than a batch of them is ever in memory. What cannot be read is left
out and named.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ucb.checks import count
from ucb.data.readers import images
from ucb.data.readers.images import Images, UnreadableImageError, is_image, quiet
from ucb.data.readers.reader import Shape, Skipped, as_text, count_words, find_lonely, one_form, quote, stamps
from ucb.storage import ceilings, open_checked

Identity = tuple[int, int]
ADDED_BY_ARCHIVERS = "__MACOSX"
ANY_DEPTH = "**"
EXPECTED = "expected is a folder for each class with its images inside, as in"
PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}
LOOSE = ("image lies in no class folder and is", "images lie in no class folder and are")
NO_IMAGES = ("file that is no image is", "files that are no images are")
THREADS = min(8, os.cpu_count() or 1)


@dataclass(eq=False)
class ImageFiles:
    """Examples that are image files, read when they are asked for."""

    paths: list[str]
    names: list[str]
    labels: list[str] | None
    shape: Shape
    remarks: list[str]
    skipped: list[Skipped]
    exact: bool = False
    """Whether every pixel of a large image counts; otherwise it may be decoded smaller, which is quicker."""
    columns: list[str] | None = None
    warnings: list[str] = field(default_factory=list)
    """Why the labels may be others than what the user means."""
    _unreadable: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.paths)

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and uint8 [n, C, H, W]; several threads decode, because Pillow lets them."""
        count("size", size)
        with ThreadPoolExecutor(THREADS) as pool:
            for chunk in indices.split(size):
                positions = chunk.tolist()
                share = max(1, -(-len(positions) // THREADS))  # one piece a thread: single images are too small
                pieces = [positions[start : start + share] for start in range(0, len(positions), share)]
                with quiet():
                    read = [image for piece in pool.map(self._read_piece, pieces) for image in piece]
                found = []
                for position, image in zip(positions, read, strict=True):
                    if not isinstance(image, str):
                        found.append((position, image))
                    elif position not in self._unreadable:
                        self._unreadable.add(position)
                        self.skipped.append(Skipped(self.names[position], image))
                if found:
                    x = images.channels_first(np.stack([image for _, image in found]))
                    yield torch.tensor([position for position, _ in found]), torch.from_numpy(x)

    def stamps(self) -> list[str]:
        """Return the size and the time of change of each file."""
        return stamps(self.paths)

    def read(self, position: int) -> Images | str:
        """Return one image as uint8 [H, W] or [H, W, 3], or why it cannot be read."""
        try:
            with open_checked(self.paths[position], ceilings.IMAGE) as file:
                return images.read_image(file, self.shape, exact=self.exact)
        except (UnreadableImageError, OSError) as error:
            return _why(error)

    def _read_piece(self, positions: list[int]) -> list[Images | str]:
        return [self.read(position) for position in positions]


def shape_of_files(where: str, paths: Sequence[str]) -> Shape:
    """Return the shape that suits image files, by a sample of them."""
    seen, why, least = [], "", images.FINER * images.MOST
    with quiet():
        for number in images.sample(len(paths)):
            try:
                with open_checked(paths[number], ceilings.IMAGE) as file:
                    image = images.load_plain(images.open_image(file, least), least)
            except (UnreadableImageError, OSError) as error:
                why = _why(error)
            else:
                seen.append((image.height, image.width, images.is_grey(image)))
    if not seen:
        raise ValueError(f"{where}: none of its images can be read; of the last one tried: {why}")
    return images.settle_shape(seen)


def _why(error: UnreadableImageError | OSError) -> str:
    """Say why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return "the file is gone"
    return f"the file cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)


class ClassFolders:
    """A folder of class folders: the name of a folder is the class of all images below it, at any depth.

    Hidden files and folders are not seen; other files are counted in a remark.
    """

    def __init__(self, path: Path) -> None:
        root = os.fspath(path)
        self.where = as_text(root)
        inside = [entry.path for entry in entries(root)]
        folders = [entry for entry in inside if os.path.isdir(entry)]
        self._check(folders, any(is_image(os.path.basename(entry)) for entry in inside))
        loose = Walk(root=root)
        for entry in inside:
            if entry not in folders:
                loose.take(entry)
        whole = path.resolve()  # no link may lead to the classes, nor to what lies around them
        closed = {identity(folder) for folder in (str(whole), *map(str, whole.parents), *folders)}
        self.paths, self.labels, self.skipped, others, empty = [], [], list(loose.skipped), loose.others, []
        inner: dict[str, list[str]] = {}
        for folder in folders:
            walk, name = Walk(closed, root), one_form(os.path.basename(folder))
            walk.below(folder)
            self.paths += walk.images
            self.labels += [name] * len(walk.images)
            inner[name] = _folders_with_images(folder, walk.images)
            self.skipped += walk.skipped
            others += walk.others
            if not walk.images:
                empty.append(name)
        self.classes = list(dict.fromkeys(one_form(os.path.basename(folder)) for folder in folders))
        self.names = [loose.name(file) for file in self.paths]
        self.remarks = [*remark(len(loose.images), *LOOSE), *remark(others, *NO_IMAGES)]
        self.remarks += [f"class folder {name!r} holds no images" for name in empty]
        self.warnings = _find_nested(self.where, {name: own for name, own in inner.items() if name not in empty})

    def _check(self, folders: list[str], has_images: bool) -> None:
        """Say in a sentence what is expected where a folder is something else."""
        if not folders:
            what = "holds images, but no class folders" if has_images else "holds no class folders"
            raise ValueError(f"{self.where} {what}: {EXPECTED} {self.where}/cat/1.png")
        names = [os.path.basename(folder) for folder in folders]
        if len(names) > 1 and {name.lower() for name in names} <= PARTS:
            said = f"{self.where} holds {' and '.join(names)}, which are no classes"
            first = min(names, key=lambda name: not name.lower().startswith("train"))
            raise ValueError(f"{said}: give one of them, as in {self.where}/{first}")


def _folders_with_images(folder: str, paths: Iterable[str]) -> list[str]:
    """Return the names of the folders inside one in which its images lie; "" stands for the folder itself."""
    inside = (path[len(folder) :].lstrip(os.sep).rpartition(os.sep)[0] for path in paths)
    return sorted({one_form(each.split(os.sep)[0]) for each in inside})


def _find_nested(where: str, inner: dict[str, list[str]]) -> list[str]:
    """Return a warning where the folders inside the class folders look like the classes.

    So they do if no image lies in a class folder itself, and one of these has several folders with images, or is the
    only one and is called train or the like. ``inner`` has the folders with images of each class folder.
    """
    several = [name for name, own in inner.items() if len(own) > 1]
    part = [name for name in inner if len(inner) == 1 and name.lower() in PARTS]
    if any("" in own for own in inner.values()) or not (several or part):
        return []
    meant = (several or part)[0]
    said = f"the classes are the folders {quote(list(inner))} of {where}, not those inside them, {quote(inner[meant])}"
    return [f"{said}: if these are meant, the command is `ucb learn MODEL {shlex.quote(f'{where}/{meant}')}`"]


def read_class_folders(path: Path, like: Shape | None) -> ImageFiles:
    """Read a folder of class folders, in the shape ``like`` or one that suits its images."""
    found = ClassFolders(path)
    if not found.paths:
        raise ValueError(f"{found.where}: its class folders hold no images; {EXPECTED} {found.where}/cat/1.png")
    shape = shape_of_files(found.where, found.paths) if like is None else like
    remarks = found.remarks + find_lonely(found.labels)
    return ImageFiles(found.paths, found.names, found.labels, shape, remarks, found.skipped, warnings=found.warnings)


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
        return as_text(path if self.root is None else os.path.relpath(path, self.root).replace(os.sep, "/"))

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


def remark(number: int, one: str, many: str) -> list[str]:
    """Return a remark on how many files are left out, unless there are none."""
    return [f"{count_words(number, one, many)} left out"] if number else []


def is_pattern(text: str) -> bool:
    """Whether a text has a character that stands for others."""
    return re.search(r"[*?\[]", text) is not None


def match_pattern(pattern: str) -> list[str]:
    """Return the files and folders that a pattern names, each once, in order.

    ``*``, ``?``, ``[...]`` and ``**`` mean what they do in a shell, for patterns that come quoted. Python's own `glob`
    walks in circles where links do; here ``**`` follows no links to folders.
    """
    path = Path(pattern)
    parts = path.parts[1:] if path.anchor else path.parts
    return list(dict.fromkeys(_match_parts(path.anchor, list(parts))))


def _match_parts(base: str, parts: list[str]) -> Iterator[str]:
    if not parts:
        yield base
        return
    head, rest = parts[0], parts[1:]
    if head == ANY_DEPTH:
        for folder in _folders_below(base):
            if rest:
                yield from _match_parts(folder, rest)
            else:
                yield from filter(os.path.isfile, _inside(folder))
    elif is_pattern(head):
        for path in _inside(base, hidden=head.startswith(".")):
            if fnmatchcase(one_form(os.path.basename(path)), one_form(head)) and (not rest or os.path.isdir(path)):
                yield from _match_parts(path, rest)
    elif os.path.lexists(path := os.path.join(base, head)):
        yield from _match_parts(path, rest)


def _folders_below(base: str) -> Iterator[str]:
    """Return a folder and all below it."""
    waiting = [base]
    while waiting:
        yield (folder := waiting.pop())
        folders = [path for path in _inside(folder) if os.path.isdir(path) and not os.path.islink(path)]
        waiting += reversed(folders)


def _inside(folder: str, hidden: bool = False) -> list[str]:
    """Return the paths in a folder, those of hidden files and folders only where they are asked for."""
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if hidden or not is_hidden(name)]
