"""Arrays in .npz files: data sets of ucb, and examples of your own. Nothing is ever unpickled.

Each array is asked for what it says of itself before any of it is read. Examples are images [N, H, W], [N, H, W, C] or
[N, C, H, W], or rows [N, F].
"""

from __future__ import annotations

import math
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ucb.data.readers import images, reader
from ucb.data.readers.images import Images, quiet
from ucb.data.readers.reader import InOneFile, Shape, Skipped, as_labels, as_text, find_lonely, quote, short
from ucb.data.readers.tables import ColumnChoice, RowBlock, TableRows
from ucb.storage import RefusedFileError, ceilings, open_checked, replace_atomically

Labels = npt.NDArray[Any]
NPY = ".npy"
CLASS_NAMES = "class_names"
KEYS = ("x_train", "y_train", "x_test", "y_test", CLASS_NAMES)
DAMAGE = (ValueError, TypeError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)
PAIRS = (("x", "y"), ("images", "labels"), ("data", "target"), ("x_train", "y_train"))
CHANNELS = (1, 3, 4)
ROWS, PIECE = 1 << 14, 1 << 10


class Npz:
    """An open .npz file. Its arrays may take up as much together as its size on the disk allows, and memory has."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, size: int) -> None:
        self.path, self._archive = path, archive
        self._most, self._taken = min(ceilings.unpacked(size), ceilings.memory()), 0
        self._members = {name.removesuffix(NPY): name for name in archive.namelist()}
        self.names = list(self._members)

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
            said = f"unpacks to {self._taken:,} bytes and more, and {self._most:,} are the most for it"
            raise RefusedFileError(f"{self.path} {said}")
        with self._archive.open(member) as file:
            found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return found


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open an .npz file; of a damaged one numpy and zipfile may say anything."""
    with open_checked(path, ceilings.TABLE) as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is a single array or something else, and holds no named arrays")
        with zipfile.ZipFile(file) as archive:
            yield Npz(path, archive, os.fstat(file.fileno()).st_size)


class Arrays(NamedTuple):
    """Images as uint8 [n, height, width] or [n, height, width, 3], and their labels, which count in ``class_names``."""

    x_train: Images
    y_train: Labels
    x_test: Images
    y_test: Labels
    class_names: tuple[str, ...]

    def __str__(self) -> str:
        shape = "x".join(str(side) for side in self.x_train.shape[1:])
        return f"{len(self.x_train):,} + {len(self.x_test):,} images {shape}, {len(self.class_names)} classes"


def check_arrays(where: Path, arrays: Arrays) -> Arrays:
    """Return the arrays if they fit together; what does not is said in one sentence that names the file."""
    for part, x, y in (("train", arrays.x_train, arrays.y_train), ("test", arrays.x_test, arrays.y_test)):
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] != 3):
            expected = "uint8 [n, height, width] or [n, height, width, 3]"
            raise ValueError(f"{where}: x_{part} must be {expected}, not {_describe(x)}")
        if y.dtype.kind not in "ui" or y.ndim != 1:
            raise ValueError(f"{where}: y_{part} must be whole numbers [n], not {_describe(y)}")
        if len(x) != len(y):
            raise ValueError(f"{where}: x_{part} has {len(x)} images, y_{part} {len(y)} labels")
        if x.size == 0:
            raise ValueError(f"{where}: x_{part} is empty")
        if int(y.min()) < 0 or int(y.max()) >= len(arrays.class_names):
            labels = f"goes from {y.min()} to {y.max()}, but there are {len(arrays.class_names)} class names"
            raise ValueError(f"{where}: y_{part} {labels}")
    if arrays.x_train.shape[1:] != arrays.x_test.shape[1:]:
        shapes = f"{list(arrays.x_train.shape[1:])} in training, {list(arrays.x_test.shape[1:])} in testing"
        raise ValueError(f"{where}: an image is {shapes}")
    return arrays


def read_arrays(path: Path) -> Arrays:
    """Read an array file. Nothing in it is ever unpickled."""
    try:
        with open_npz(path) as file:
            if missing := [key for key in KEYS if key not in file.names]:
                raise ValueError(f"{', '.join(missing)} is missing")
            found = {key: file.read(key) for key in KEYS}
    except DAMAGE as error:
        raise ValueError(f"{path} is not an array file of ucb, or damaged: {error}") from error
    names = found.pop("class_names")
    if names.dtype.kind != "U" or names.ndim != 1:
        raise ValueError(f"{path}: class_names must be text [classes], not {_describe(names)}")
    return check_arrays(path, Arrays(**found, class_names=tuple(str(name) for name in names)))


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an array file: whole, or not at all. It is not compressed, so that it opens quickly."""
    check_arrays(path, arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path) as file:
        np.savez(file, allow_pickle=False, **arrays._asdict() | {"class_names": np.array(arrays.class_names)})


def read_array_examples(path: Path, like: Shape | None, *, with_labels: bool) -> TableRows | ImageArray:
    """Read examples, and their labels where these are asked for, whatever case the arrays' names are written in.

    Where the file names the classes (``class_names``, as array files of ucb do), labels are numbers that count in them.
    """
    where = as_text(str(path))
    x, y, classes = _load(path, where, with_labels)
    if x.ndim == 0 or x.dtype.kind not in "buif" or x.size == 0:
        raise ValueError(f"{where}: the examples must be an array of numbers, not {_describe(x)}")
    labels = None
    if y is not None:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim != 1 or len(y) != len(x) or y.dtype.kind not in "buifUS":
            raise ValueError(f"{where}: the labels must be one for each of {len(x)} examples, not {_describe(y)}")
        labels = _name_classes(where, as_labels(_to_list(where, y)), classes)
    if x.ndim == 2:
        if like is not None and like != x.shape[1:]:
            raise ValueError(f"{where} holds rows of {x.shape[1]} numbers, and the model learnt {describe_shape(like)}")
        if x.shape[1] > ceilings.COLUMNS:
            raise ValueError(f"{where} has {x.shape[1]:,} columns, and {ceilings.COLUMNS:,} are the most")
        names = [f"column {place + 1}" for place in range(x.shape[1])]
        choice = ColumnChoice(where, None if labels is None else -1, list(range(x.shape[1])), names, [], None)
        return TableRows(path, choice, None).gather(_blocks(x, labels))
    if like is not None and len(like) != 3:
        raise ValueError(f"{where} holds images, and the model learnt {describe_shape(like)}")
    return ImageArray(path, where, x, labels, like)


def describe_shape(shape: Shape) -> str:
    """Return what a model's examples are, in words."""
    if len(shape) == 1:
        return f"rows of {shape[0]}"
    return f"images {shape[1]}x{shape[2]} in {'grey' if shape[0] == 1 else 'colour'}"


def _load(path: Path, where: str, with_labels: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, list[str]]:
    """Return the examples, their labels if these are asked for, and the classes' names."""
    try:
        with quiet(), open_npz(path) as file:  # numpy warns of old files
            keys = {key.lower(): key for key in reversed(file.names)}
            for x, y in PAIRS:
                if x in keys and (y in keys or not with_labels):
                    break
            else:
                expected = ", ".join("/".join(pair) for pair in PAIRS)
                raise KeyError(f"expected are arrays called {expected}, and it holds {quote(file.names)}")
            examples = file.read(keys[x])
            labels = file.read(keys[y]) if with_labels else None
            names = file.read(keys[CLASS_NAMES]) if CLASS_NAMES in keys and with_labels else None
    except RefusedFileError:
        raise
    except KeyError as error:
        raise ValueError(f"{where}: {error.args[0]}") from None
    except Exception as error:  # a damaged archive makes numpy and zipfile say anything
        raise ValueError(f"{where} is no .npz file, or damaged: {short(str(error), 160)}") from None
    classes = _to_list(where, names) if names is not None and names.ndim == 1 and names.dtype.kind == "U" else []
    return examples, labels, classes


def _to_list(where: str, labels: npt.NDArray[Any]) -> list[Any]:
    """Return labels as Python has them. A text in an array is numbers, and any number may stand there."""
    if labels.dtype.kind == "U" and labels.size and labels.dtype.itemsize:
        codes = np.ascontiguousarray(labels).view(np.dtype("u4").newbyteorder(labels.dtype.byteorder))
        if codes.max() > sys.maxunicode:  # numpy would return a text that Python cannot handle
            raise ValueError(f"{where}: the labels hold characters that do not exist")
    return list(labels.tolist())


def _name_classes(where: str, labels: list[str | None], classes: list[str]) -> list[str | None]:
    if not classes:
        return labels
    known = {str(number): name for number, name in enumerate(classes)}
    if strange := [label for label in labels if label is not None and label not in known]:
        raise ValueError(f"{where}: label {short(strange[0])!r} is not among its {len(classes)} class names")
    return [None if label is None else known[label] for label in labels]


def _blocks(x: npt.NDArray[Any], labels: list[str | None] | None) -> Iterator[RowBlock]:
    for start in range(0, len(x), ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = x[start : start + ROWS].astype(np.float32)
        finite = np.isfinite(numbers)
        odd = {row: int(finite[row].argmin()) + 1 for row in np.flatnonzero(~finite.all(axis=1)).tolist()}
        whys = {row: f"column 'column {place}' is missing or not finite" for row, place in odd.items()}
        yield RowBlock(numbers, None if labels is None else labels[start : start + ROWS], whys=whys)


def _describe(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"


class ImageArray(InOneFile):
    """Examples that are images in an array [N, H, W], [N, H, W, C] or [N, C, H, W] with C = 1, 3 or 4.

    Where both the last and the second axis could be the channels, the last is. Values are 0 to 255, or 0 to 1 if they
    are fractions none of which is above 1; uint16 with a value above 255 is 16-bit. A fourth channel is how opaque a
    pixel is.
    """

    columns: list[str] | None = None

    def __init__(
        self, path: Path, where: str, x: npt.NDArray[Any], labels: list[str | None] | None, like: Shape | None
    ) -> None:
        self.path = path
        self._x = _channels_last(where, x)
        self._scale, broken = _scale(where, self._x)
        whys = dict.fromkeys(broken, "it holds values that are not finite")
        for place, label in enumerate(labels or []):
            if not label:
                whys.setdefault(place, "it has no label")
        self.skipped = [Skipped(f"row {place + 1}", why) for place, why in sorted(whys.items())]
        self._rows = np.array([place for place in range(len(x)) if place not in whys], np.int64)
        if not len(self._rows):
            raise ValueError(f"{where} holds no image that can be used; {self.skipped[0]}")
        self.names = [f"row {place + 1}" for place in self._rows.tolist()]
        self.labels = None if labels is None else reader.share_texts((labels[place] for place in self._rows), {})
        self.remarks = find_lonely(self.labels or [])
        self.shape: Shape = like if like is not None else self._settle_shape()

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, positions: npt.NDArray[np.int64]) -> Images:
        """Return uint8 [n, C, H, W]; images that have the shape already only swap axes."""
        channels, height, width = self.shape
        found = self._bytes(positions)
        if found.shape[1:] == (height, width, channels):
            return images.channels_first(found)
        return images.channels_first(np.stack([images.fit(_plain(image), self.shape) for image in found]))

    def _settle_shape(self) -> Shape:
        seen = []
        for position in images.sample(len(self)):
            image = _plain(self._bytes(np.array([position]))[0])
            seen.append((image.height, image.width, images.is_grey(image)))
        return images.settle_shape(seen)

    def _bytes(self, positions: npt.NDArray[np.int64]) -> Images:
        """Return some images as uint8 [n, H, W, C]."""
        found = self._x[self._rows[positions]]
        if found.dtype == np.uint8 and self._scale == 1:
            return found
        return np.rint(found.astype(np.float64) * self._scale).astype(np.uint8)


def _plain(image: Images) -> Image.Image:
    """Return bytes [H, W, C] as a plain image of Pillow."""
    return images.to_plain(Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image))


def _channels_last(where: str, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if x.ndim == 3:
        return x[..., None]
    if x.ndim == 4 and x.shape[3] in CHANNELS:
        return x
    if x.ndim == 4 and x.shape[1] in CHANNELS:
        return x.transpose(0, 2, 3, 1)
    expected = "rows [N, F] or images [N, H, W], [N, H, W, C] or [N, C, H, W] with 1, 3 or 4 channels"
    raise ValueError(f"{where}: expected are {expected}, not {list(x.shape)}")


def _scale(where: str, x: npt.NDArray[Any]) -> tuple[float, list[int]]:
    """Return what makes values 0 to 255, and the places of the images that hold values which are not finite."""
    least, most, broken = np.inf, -np.inf, list[int]()
    for start in range(0, len(x), PIECE):
        piece = x[start : start + PIECE]
        if x.dtype.kind == "f":
            finite = np.isfinite(piece).all(axis=(1, 2, 3))
            broken += (np.flatnonzero(~finite) + start).tolist()
            piece = piece[finite]
        if piece.size:
            least, most = min(least, float(piece.min())), max(most, float(piece.max()))
    if x.dtype.kind == "b":
        return 255.0, broken
    if least < 0 or most > (65_535 if x.dtype == np.uint16 else 255):
        raise ValueError(f"{where}: values of images must be 0 to 255, or 0 to 1, and they are {least:g} to {most:g}")
    if x.dtype.kind == "f" and most <= 1:
        return 255.0, broken
    return 1 / 257 if most > 255 else 1.0, broken
