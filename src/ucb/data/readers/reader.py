"""The protocol of all readers of examples, and how names and labels become text."""

from __future__ import annotations

import hashlib
import math
import os
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucb.checks import count

Shape: TypeAlias = tuple[int, ...]
"""Of one example: (C, H, W) of an image with C = 1 or 3, (F,) of a row."""
MOST_NAMES, LONGEST = 12, 40
"""Names that one sentence lists, and characters that it shows of a text."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An example that is left out, and why."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def say_first(before: str, skipped: Sequence[Skipped]) -> str:
    """Return the end of a sentence that names the first of the examples that are left out, if there is any."""
    return f"{before}{skipped[0]}" if skipped else ""


@runtime_checkable
class ExampleReader(Protocol):
    """Images or rows of one shape, read when they are asked for."""

    shape: Shape
    """Of one example, after conversion."""
    labels: list[str] | None
    """The class of each as text in any script; None where labels were not asked for."""
    columns: list[str] | None
    """The names of a table's columns."""
    skipped: list[Skipped]
    """What is left out; it grows while examples are read, because what cannot be read is found then."""
    remarks: list[str]
    """Sentences about the data, for the user."""

    @property
    def names(self) -> list[str]:
        """Each one's path, relative to the data's folder, or "row 17" of a table."""

    def __len__(self) -> int: ...

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the positions of up to ``size`` examples, and them: uint8 [n, C, H, W] or float32 [n, F].

        NaN stands for a number that is missing in a table. What cannot be read is left out of both and added to
        ``skipped``.
        """


class InOneFile(ABC):
    """Examples that one file holds, in memory once it is read."""

    path: Path

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def values(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the examples at some positions."""

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and examples."""
        count("size", size)
        for chunk in indices.split(size):
            if len(chunk):
                yield chunk, torch.from_numpy(self.values(chunk.numpy()))

    def stamps(self) -> list[str]:
        """Return the size and the time of change of the file."""
        return stamps([self.path])


def fingerprint(examples: ExampleReader) -> str:
    """Return a hash over shape, columns, names and labels, and over the files' sizes and times of change.

    Equal means that an interrupted `learn` may go on: nothing was added, removed, renamed or written since. Where the
    folder lies does not matter. Examples of another kind may have a method ``stamps`` that tells their content apart.
    """
    digest = hashlib.sha256()
    stamps: list[str] = examples.stamps() if hasattr(examples, "stamps") else []
    sizes = [str(side) for side in examples.shape]
    for part in (sizes, examples.columns, examples.names, examples.labels, stamps):
        digest.update(b"none" if part is None else f"{len(part)}:".encode())
        for text in part or ():
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()


def stamps(paths: Iterable[str | Path]) -> list[str]:
    """Return the size and the time of change of each file."""
    found = []
    for path in paths:
        try:
            status = Path(path).stat()
        except OSError:
            found.append("gone")
        else:
            found.append(f"{status.st_size} {status.st_mtime_ns}")
    return found


def as_text(name: str) -> str:
    """Return a file's name as text that can be written anywhere: bytes that are no text are shown as such."""
    try:
        name.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(name).decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # half a character, which no file's name can hold
            return name.encode("utf-8", "backslashreplace").decode()
    return name


def one_form(name: str) -> str:
    """Return the one form (NFC) of a name that can be written with composed or with separate accents."""
    return unicodedata.normalize("NFC", as_text(name))


def short(text: str, most: int = LONGEST) -> str:
    """Return the beginning of a text that may be long, in one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}..."


def quote(names: Sequence[str]) -> str:
    """Return names in quotes; of many only the first."""
    quoted = [repr(short(name)) for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        return f"{', '.join(quoted)} and {len(names) - MOST_NAMES} more"
    return ", ".join(quoted)


def count_words(number: int, one: str, many: str) -> str:
    """Return a number with its words: ``1 file is`` or ``2 files are``."""
    return f"{number:,} {one if number == 1 else many}"


def find_lonely(labels: Sequence[str]) -> list[str]:
    """Return a remark for each class that has a single example."""
    return [f"class {short(name)!r} has one example" for name, times in Counter(labels).items() if times == 1]


def share_texts(labels: Iterable[str | None], known: dict[str, str]) -> list[str]:
    """Return labels in their one form; equal ones, and those that are ``known``, are one text in memory."""
    return [known.setdefault(label, label) for label in (one_form(str(label)) for label in labels)]


def as_labels(values: Iterable[Any]) -> list[str | None]:
    """Return labels as text, None where there is none. A whole number is the same class however it is stored."""
    return [_as_label(value) for value in values]


def _as_label(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bytes():
            return value.decode("utf-8", "backslashreplace").strip()
        case float() if not math.isfinite(value):
            return None
        case float() if value.is_integer():
            return str(int(value))
        case Decimal():
            digits = format(value, "f")
            return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return str(value).strip()
