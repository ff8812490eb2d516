"""Arrays in an .npz file: images [N, H, W], [N, H, W, C] or [N, C, H, W], or rows [N, F]. Nothing is ever unpickled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ucb.datasets.formats.images import quiet
from ucb.datasets.npz import opened_npz
from ucb.storage import RefusedFileError, ceilings
from ucb.waves.sources.columns import Choice
from ucb.waves.sources.examples import Shape
from ucb.waves.sources.image_arrays import ImageArray
from ucb.waves.sources.labels import as_labels
from ucb.waves.sources.rows import Block, Rows
from ucb.waves.sources.words import listed, short, shown

PAIRS = (("x", "y"), ("images", "labels"), ("data", "target"), ("x_train", "y_train"))
CLASS_NAMES = "class_names"
ROWS = 1 << 14


def read_arrays_file(path: Path, like: Shape | None, *, labelled: bool) -> Rows | ImageArray:
    """Read examples, and their labels where these are asked for, whatever case the arrays' names are written in.

    Where the file names the classes (``class_names``, as array files of ucb do), labels are numbers that count in them.
    """
    where = shown(str(path))
    x, y, classes = _loaded(path, where, labelled)
    if x.ndim == 0 or x.dtype.kind not in "buif" or x.size == 0:
        raise ValueError(f"{where}: the examples must be an array of numbers, not {_described(x)}")
    labels = None
    if y is not None:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim != 1 or len(y) != len(x) or y.dtype.kind not in "buifUS":
            raise ValueError(f"{where}: the labels must be one for each of {len(x)} examples, not {_described(y)}")
        labels = _named(where, as_labels(_listed(where, y)), classes)
    if x.ndim == 2:
        if like is not None and like != x.shape[1:]:
            raise ValueError(f"{where} holds rows of {x.shape[1]} numbers, and the model learnt {described(like)}")
        if x.shape[1] > ceilings.COLUMNS:
            raise ValueError(f"{where} has {x.shape[1]:,} columns, and {ceilings.COLUMNS:,} are the most")
        names = [f"column {place + 1}" for place in range(x.shape[1])]
        choice = Choice(where, None if labels is None else -1, list(range(x.shape[1])), names, [])
        return Rows(path, choice, None).gather(_blocks(x, labels))
    if like is not None and len(like) != 3:
        raise ValueError(f"{where} holds images, and the model learnt {described(like)}")
    return ImageArray(path, where, x, labels, like)


def described(shape: Shape) -> str:
    """Return what a model's examples are, in words."""
    if len(shape) == 1:
        return f"rows of {shape[0]}"
    return f"images {shape[1]}x{shape[2]} in {'grey' if shape[0] == 1 else 'colour'}"


def _loaded(path: Path, where: str, labelled: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, list[str]]:
    """Return the examples, their labels if these are asked for, and the classes' names."""
    try:
        with quiet(), opened_npz(path) as file:  # numpy, too, has opinions about old files
            keys = {key.lower(): key for key in reversed(file.names)}
            for x, y in PAIRS:
                if x in keys and (y in keys or not labelled):
                    break
            else:
                expected = ", ".join("/".join(pair) for pair in PAIRS)
                raise KeyError(f"expected are arrays called {expected}, and it holds {listed(file.names)}")
            examples = file.read(keys[x])
            labels = file.read(keys[y]) if labelled else None
            names = file.read(keys[CLASS_NAMES]) if CLASS_NAMES in keys and labelled else None
    except RefusedFileError:
        raise
    except KeyError as error:
        raise ValueError(f"{where}: {error.args[0]}") from None
    except Exception as error:  # a damaged archive makes numpy and zipfile say anything
        raise ValueError(f"{where} is no .npz file, or damaged: {short(str(error), 160)}") from None
    classes = _listed(where, names) if names is not None and names.ndim == 1 and names.dtype.kind == "U" else []
    return examples, labels, classes


def _listed(where: str, labels: npt.NDArray[Any]) -> list[Any]:
    """Return labels as Python has them. A text in an array is numbers, and any number may stand there."""
    if labels.dtype.kind == "U" and labels.size and labels.dtype.itemsize:
        codes = np.ascontiguousarray(labels).view(np.dtype("u4").newbyteorder(labels.dtype.byteorder))
        if codes.max() > sys.maxunicode:  # numpy would make a text of it that breaks whoever touches it
            raise ValueError(f"{where}: the labels hold characters that do not exist")
    return list(labels.tolist())


def _named(where: str, labels: list[str | None], classes: list[str]) -> list[str | None]:
    if not classes:
        return labels
    known = {str(number): name for number, name in enumerate(classes)}
    if strange := [label for label in labels if label is not None and label not in known]:
        raise ValueError(f"{where}: label {short(strange[0])!r} is not among its {len(classes)} class names")
    return [None if label is None else known[label] for label in labels]


def _blocks(x: npt.NDArray[Any], labels: list[str | None] | None) -> Iterator[Block]:
    for start in range(0, len(x), ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = x[start : start + ROWS].astype(np.float32)
        yield Block(numbers, None if labels is None else labels[start : start + ROWS])


def _described(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"
