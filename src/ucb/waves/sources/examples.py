"""What a wave's data look like to whoever learns from them, wherever they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

Shape: TypeAlias = tuple[int, ...]
"""Of one example: (C, H, W) of an image with C = 1 or 3, (F,) of a row."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An example that is left out, and why."""

    name: str
    why: str


@runtime_checkable
class Examples(Protocol):
    """Images or rows of one shape, read when they are asked for."""

    @property
    def shape(self) -> Shape:
        """Of one example, after conversion."""

    @property
    def names(self) -> list[str]:
        """Each one's path, relative to the data's folder, or "row 17" of a table."""

    @property
    def labels(self) -> list[str] | None:
        """The class of each as text in any script; None where labels were not asked for."""

    @property
    def columns(self) -> list[str] | None:
        """The names of a table's columns of numbers."""

    @property
    def skipped(self) -> list[Skipped]:
        """What is left out; it grows while examples are read, because what cannot be read is found then."""

    @property
    def remarks(self) -> list[str]:
        """Sentences for whoever gave the data."""

    def __len__(self) -> int: ...

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the positions of up to ``size`` examples, and them: uint8 [n, C, H, W] or float32 [n, F].

        What cannot be read is left out of both and added to ``skipped``.
        """


def fingerprint(examples: Examples) -> str:
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
