"""Official files as their authors publish them, made into arrays. Nothing is unpickled, nothing unpacked on disk."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ucb.data.catalogue import DataSet
from ucb.data.readers.archives import members, names
from ucb.data.readers.arrays import Arrays, Labels
from ucb.data.readers.images import Images, UnreadableImageError, is_image, quiet, read_image
from ucb.storage import ceilings, open_checked, read_bytes

GZIP, UNSIGNED_BYTES = b"\x1f\x8b", 8
PIXELS = 3 * 32 * 32
TRAIN_10, TEST_10 = tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"
TRAIN_100, TEST_100 = ("train.bin",), "test.bin"
PICKLES = {"data_batch_1", "test_batch", "batches.meta", "train", "test", "meta"}
GTSRB_TRAIN = re.compile(r"(?:^|/)Final_Training/Images/(\d{5})/([^/]+\.ppm)$")
GTSRB_TEST = re.compile(r"(?:^|/)Final_Test/Images/([^/]+\.ppm)$")
GTSRB_TABLE = re.compile(r"(?:^|/)GT-final_test\.csv$")
SEED = 0
FACE = 2.2  # LFW's images show 2.2 times as much, in both directions, as the box in which a face was found

# Of a MATLAB file of version 5. SciPy reads these too, but a damaged one can crash the process.
MAT_HEADER, MAT_MARK = 128, b"\0\1IM"
"""The version, and how numbers are stored: their first byte is the least, as on all machines of today."""
TEXT, WHOLE, FLAGS, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
COMPLEX = 1 << 11


class Parsed(NamedTuple):
    """The arrays, and how many images were skipped because they could not be read."""

    arrays: Arrays
    unreadable: int = 0


def parse(known: DataSet, files: Sequence[Path]) -> Parsed:
    """Read the official files of a data set, in the order of the catalogue, or the one folder given instead."""
    if known.name in PARSERS:
        assert known.classes is not None
        return Parsed(PARSERS[known.name](files, known.classes))
    return read_folders(files, known, FACE if known.name == "lfw100" else 1.0)


def read_idx(files: Sequence[Path], classes: tuple[str, ...]) -> Arrays:
    """Read training images, training labels, test images and test labels in MNIST's format, each gzipped or raw."""
    x_train, x_test = (idx_array(files[place], dimensions=3) for place in (0, 2))
    y_train, y_test = (idx_array(files[place], dimensions=1) for place in (1, 3))
    return Arrays(x_train, y_train, x_test, y_test, classes)


def idx_array(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read one idx file: a short header, then one byte a pixel or label."""
    try:
        with open_checked(path, ceilings.MEMBER) as file:
            zipped = file.read(2) == GZIP
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if zipped else file).read(ceilings.MEMBER + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if len(content) > ceilings.MEMBER:
        raise ValueError(f"{path} is absurdly large: it unpacks to more than {ceilings.MEMBER:,} bytes")
    header = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, UNSIGNED_BYTES, dimensions)) or len(content) < header:
        raise ValueError(f"{path} is not an idx file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise ValueError(f"{path} is damaged: {len(content) - header} bytes where {math.prod(shape)} should be")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def read_cifar(files: Sequence[Path], classes: tuple[str, ...]) -> Arrays:
    """Read the binary version of CIFAR-10 or, when there are 100 classes, CIFAR-100 with its fine labels.

    A record is one label (CIFAR-100: a coarse, then a fine one) and 3072 bytes of pixels.
    """
    (path,) = files
    fine = len(classes) == 100
    train, test = (TRAIN_100, TEST_100) if fine else (TRAIN_10, TEST_10)
    found = {_last(name): content for name, content in members(path, lambda name: _last(name) in {*train, test})}
    if missing := [name for name in (*train, test) if name not in found]:
        if PICKLES & {_last(name) for name in names(path)}:
            fetch = f"fetch the binary version, cifar-{len(classes)}-binary.tar.gz"
            raise ValueError(f"{path} is the Python version, made of pickles, which are not read: {fetch}")
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    labels = 2 if fine else 1
    parts = [_read_records(path, name, found[name], labels) for name in train]
    x_train, y_train = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Arrays(x_train, y_train, *_read_records(path, test, found[test], labels), classes)


def _read_records(path: Path, name: str, content: bytes, labels: int) -> tuple[Images, Labels]:
    if not content or len(content) % (labels + PIXELS):
        raise ValueError(f"{path}: {name} is damaged: {len(content)} bytes are no whole number of records")
    records = np.frombuffer(content, np.uint8).reshape(-1, labels + PIXELS)
    pixels = records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), records[:, labels - 1].copy()


def _last(name: str) -> str:
    return PurePosixPath(name).name


def read_svhn(files: Sequence[Path], classes: tuple[str, ...]) -> Arrays:
    """Read the training and the test file of SVHN's cropped digits.

    They are MATLAB files with X [32, 32, 3, n] and y [n, 1], in which 10 stands for the digit 0.
    """
    train, test = files
    return Arrays(*_svhn_digits(train), *_svhn_digits(test), classes)


def _svhn_digits(path: Path) -> tuple[Images, Labels]:
    content = read_bytes(path, ceilings.OFFICIAL)
    try:
        found = dict(mat_arrays(content, ceilings.unpacked(len(content))))
        x, y = (found.get(name, np.empty(0)) for name in ("X", "y"))
        if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8:
            raise ValueError(f"X is {x.dtype} {list(x.shape)}, not uint8 [32, 32, 3, n]")
        if y.shape != (x.shape[3], 1):
            raise ValueError(f"y is {list(y.shape)}, not {[x.shape[3], 1]}")
    except ValueError as error:
        raise ValueError(f"{path} is not a file of SVHN's cropped digits, or damaged: {error}") from error
    labels = y[:, 0]
    if not np.isin(labels, range(1, 11)).all():
        raise ValueError(f"{path}: y must be whole numbers from 1 to 10")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), (labels % 10).astype(np.uint8)


def mat_arrays(content: bytes, most: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield names and arrays of numbers in a MATLAB file: tagged elements, most of them compressed.

    A ValueError says what is wrong, also where all of them unpack to more than ``most`` bytes.
    """
    if content[MAT_HEADER - 4 : MAT_HEADER] != MAT_MARK:
        raise ValueError("it is no MATLAB file of version 5")
    place = MAT_HEADER
    while place < len(content):
        kind, part, place = _mat_element(memoryview(content), place)
        if kind == COMPRESSED:
            part = memoryview(_inflate(part, most))
            most -= len(part)
            kind, part, _ = _mat_element(part, 0)
        if kind != MATRIX:
            raise ValueError(f"it holds an element of type {kind}, which is no array")
        yield _mat_array(part)


def _mat_element(content: memoryview, place: int) -> tuple[int, memoryview, int]:
    """Return the type and the data of the element at a place, and where the next one begins."""
    if len(content) < place + 8:
        raise ValueError("it is cut short")
    kind, size = struct.unpack_from("<II", content, place)
    if kind >> 16:  # up to four bytes stand in the tag itself
        kind, size, start, after = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        if size > 4:
            raise ValueError("it has a tag of no known form")
    else:
        start = place + 8
        after = start + size + (0 if kind == COMPRESSED else -size % 8)
    if len(content) < start + size:
        raise ValueError("it is cut short")
    return kind, content[start : start + size], after


def _inflate(part: memoryview, most: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(part, most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(found) > most:
        raise ValueError(f"it unpacks to more than the {most:,} bytes that are the most for it")
    if not inflater.eof:
        raise ValueError("it is cut short")
    return found


def _mat_array(content: memoryview) -> tuple[str, npt.NDArray[Any]]:
    """Return name and values of an array: flags, sides, name and numbers, which run along the first side first."""
    parts, place = list[tuple[int, memoryview]](), 0
    while len(parts) < 4:
        kind, part, place = _mat_element(content, place)
        parts.append((kind, part))
    (flags, flag), (sides, side), (text, name), (kind, values) = parts
    if (flags, sides, text) != (FLAGS, WHOLE, TEXT) or len(flag) != 8 or len(side) % 4 or kind not in NUMBERS:
        raise ValueError("it holds something else than arrays of numbers")
    if struct.unpack_from("<I", flag)[0] & COMPLEX:
        raise ValueError("it holds complex numbers")
    shape = struct.unpack(f"<{len(side) // 4}i", side)
    dtype = np.dtype(NUMBERS[kind])
    if min(shape, default=-1) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"it holds {len(values):,} bytes for an array {list(shape)} of {dtype}")
    return bytes(name).decode("latin-1"), np.frombuffer(values, dtype).reshape(shape, order="F")


def read_gtsrb(files: Sequence[Path], classes: tuple[str, ...]) -> Arrays:
    """Read the three official archives of GTSRB, or one folder in which they were unpacked.

    PPM images, for training in a folder for each class, for testing beside a table of their classes.
    """
    train: dict[tuple[int, str], Images] = {}
    test: dict[str, Images] = {}
    table: dict[str, int] = {}

    def wanted(name: str) -> bool:
        return any(pattern.search(name) for pattern in (GTSRB_TRAIN, GTSRB_TEST, GTSRB_TABLE))

    for path in files:
        for name, content in members(path, wanted):
            if GTSRB_TABLE.search(name):
                table = _gtsrb_labels(path, content)
                continue
            try:
                image = _image(content, (32, 32, 3))
            except UnreadableImageError:
                raise ValueError(f"{path}: {name} is damaged") from None
            if match := GTSRB_TRAIN.search(name):
                train[int(match[1]), match[2]] = image
            elif match := GTSRB_TEST.search(name):
                test[match[1]] = image
    where = ", ".join(str(path) for path in files)
    absent = (("Final_Training/Images", train), ("Final_Test/Images", test), ("GT-final_test.csv", table))
    if lacking := [what for what, found in absent if not found]:
        raise ValueError(f"{where}: {', '.join(lacking)} is missing")
    if strange := set(table) ^ set(test):
        raise ValueError(f"{where}: GT-final_test.csv and the test images differ in {min(strange)}")
    ordered = sorted(train)
    x_train, y_train = np.stack([train[each] for each in ordered]), np.array([label for label, _ in ordered], np.int64)
    x_test, y_test = np.stack([test[name] for name in table]), np.array(list(table.values()), np.int64)
    return Arrays(x_train, y_train, x_test, y_test, classes)


def _gtsrb_labels(path: Path, content: bytes) -> dict[str, int]:
    """Return the class of each test image."""
    try:
        rows = csv.DictReader(io.StringIO(content.decode("ascii")), delimiter=";")
        return {row["Filename"]: int(row["ClassId"]) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: GT-final_test.csv does not tell Filename and ClassId in each row") from error


def _image(content: bytes, shape: tuple[int, ...], zoom: float = 1.0) -> Images:
    """Return an image in the shape [H, W] or [H, W, 3]."""
    height, width, *colours = shape
    with quiet():
        return read_image(io.BytesIO(content), (3 if colours else 1, height, width), exact=True, zoom=zoom)


def read_folders(files: Sequence[Path], known: DataSet, zoom: float) -> Parsed:
    """Read images in class folders, in an archive or on disk: of the classes known, or of those that have most images.

    The folder that an image is in names its class. Images that cannot be read are counted. A tenth of each class,
    chosen by the hash of seed and name, is for testing: the same in an archive and in a folder, whatever the order of
    the files.
    """
    (path,) = files
    classes = _find_largest(path, known.n_classes) if known.classes is None else known.classes
    label = {name: number for number, name in enumerate(classes)}
    found: dict[str, Images] = {}
    unreadable = 0
    for name, content in members(path, lambda name: is_image(name) and _class(name) in label):
        if _short(name) in found:
            raise ValueError(f"{path} has more than one {_short(name)}: give one folder of class folders")
        try:
            image = found[_short(name)] = _image(content, known.shape, zoom)
        except UnreadableImageError:
            unreadable += 1
            continue
        if image.nbytes * len(found) > ceilings.UNPACKED:
            raise ValueError(f"{path}: its images take more than {ceilings.UNPACKED:,} bytes: give fewer of them")
    train, test = split_by_hash(path, found, classes)
    x_train, x_test = (np.stack([found[name] for name in part]) for part in (train, test))
    y_train, y_test = (np.array([label[_class(name)] for name in part], np.int64) for part in (train, test))
    return Parsed(Arrays(x_train, y_train, x_test, y_test, classes), unreadable)


def split_by_hash(path: Path, found: Collection[str], classes: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the names of the images for training and for testing, each in an order that mixes the classes."""
    ordered = sorted(found, key=lambda name: hashlib.sha256(f"{SEED}/{name}".encode()).digest())
    total = Counter(_class(name) for name in ordered)
    taken: Counter[str] = Counter()
    train, test = [], []
    for label in classes:
        if total[label] < 2:
            raise ValueError(f"{path}: class {label} has {total[label]} readable images; it takes 2 at least")
    for name in ordered:
        label = _class(name)
        if taken[label] < max(1, (total[label] + 5) // 10):
            taken[label] += 1
            test.append(name)
        else:
            train.append(name)
    return train, test


def _find_largest(path: Path, most: int) -> tuple[str, ...]:
    """Return the classes that have most images, sorted by name; among equals the first in the alphabet are taken."""
    sizes = Counter(_class(name) for name in names(path) if is_image(name) and _class(name))
    if len(sizes) < most:
        raise ValueError(f"{path} has images in {len(sizes)} class folders; {most} are needed")
    return tuple(sorted(sorted(sizes, key=lambda name: (-sizes[name], name))[:most]))


def _class(name: str) -> str:
    """Return the name of the folder that an image is in."""
    return PurePosixPath(name).parent.name


def _short(name: str) -> str:
    return "/".join(PurePosixPath(name).parts[-2:])


PARSERS: dict[str, Callable[[Sequence[Path], tuple[str, ...]], Arrays]] = {
    "mnist": read_idx,
    "fashion_mnist": read_idx,
    "cifar10": read_cifar,
    "cifar100": read_cifar,
    "svhn": read_svhn,
    "traffic_signs": read_gtsrb,
}
"""Parsers of data sets whose classes are fixed; the others are class folders."""
