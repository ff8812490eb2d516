"""GTSRB: PPM images, for training in a folder for each class, for testing beside a table of their classes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ucb.datasets.arrays import Arrays, Images
from ucb.datasets.formats.images import decoded
from ucb.datasets.formats.members import members
from ucb.datasets.formats.parsed import Parsed

TRAIN = re.compile(r"(?:^|/)Final_Training/Images/(\d{5})/([^/]+\.ppm)$")
TEST = re.compile(r"(?:^|/)Final_Test/Images/([^/]+\.ppm)$")
TABLE = re.compile(r"(?:^|/)GT-final_test\.csv$")
SHAPE = (32, 32, 3)


def read_gtsrb(files: Sequence[Path], classes: tuple[str, ...]) -> Parsed:
    """Read the three official archives, or one folder in which they were unpacked."""
    train: dict[tuple[int, str], Images] = {}
    test: dict[str, Images] = {}
    table = None
    for path in files:
        for name, content in members(path, _wanted):
            if TABLE.search(name):
                table = _labels(path, content)
            elif match := TRAIN.search(name):
                train[int(match[1]), match[2]] = _image(path, name, content)
            elif match := TEST.search(name):
                test[match[1]] = _image(path, name, content)
    where = ", ".join(str(path) for path in files)
    absent = (("Final_Training/Images", train), ("Final_Test/Images", test), ("GT-final_test.csv", table))
    if lacking := [what for what, found in absent if not found]:
        raise ValueError(f"{where}: {', '.join(lacking)} is missing")
    assert table is not None
    if strange := set(table) ^ set(test):
        raise ValueError(f"{where}: GT-final_test.csv and the test images differ in {min(strange)}")
    ordered = sorted(train)
    return Parsed(
        Arrays(
            np.stack([train[each] for each in ordered]),
            np.array([label for label, _ in ordered], np.int64),
            np.stack([test[name] for name in table]),
            np.array(list(table.values()), np.int64),
            classes,
        )
    )


def _wanted(name: str) -> bool:
    return any(pattern.search(name) for pattern in (TRAIN, TEST, TABLE))


def _labels(path: Path, content: bytes) -> dict[str, int]:
    """Return the class of each test image."""
    try:
        rows = csv.DictReader(io.StringIO(content.decode("ascii")), delimiter=";")
        return {row["Filename"]: int(row["ClassId"]) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: GT-final_test.csv does not tell Filename and ClassId in each row") from error


def _image(path: Path, name: str, content: bytes) -> Images:
    image = decoded(content, SHAPE)
    if image is None:
        raise ValueError(f"{path}: {name} is damaged")
    return image
