"""Rows of numbers from any table, gathered block by block.

A row with a value that is missing, not finite or no number is left out and listed. A column that has a number in no row
is named in an error instead.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucb.bayes.checks import count
from ucb.storage import ceilings
from ucb.waves.sources.columns import Choice
from ucb.waves.sources.examples import Shape, Skipped, stamps
from ucb.waves.sources.words import lonely, one_form, short

Numbers = npt.NDArray[np.float32]
ENOUGH = 1000
"""After so many rows without a single number in a column it is taken for text."""


@dataclass
class Block:
    """Some rows of a table: ``numbers`` [n, F], their labels, and the lines they end in, if these are known.

    ``whys`` says of a row why it cannot be used, ``not_numbers`` shows what stands in a column that has no number in
    any row of the block.
    """

    numbers: Numbers
    labels: Sequence[str | None] | None
    lines: Sequence[int] | None = None
    whys: dict[int, str] = field(default_factory=dict)
    not_numbers: dict[int, str] = field(default_factory=dict)


class Rows:
    """Examples that are rows of a table."""

    def __init__(self, path: Path, choice: Choice, columns: list[str] | None) -> None:
        self.path, self.choice, self.columns = path, choice, columns
        self.shape: Shape = (len(choice.positions),)
        self.labels: list[str] | None = None if choice.label is None else []
        self.skipped: list[Skipped] = []
        self.remarks = list(choice.remarks)
        self._numbers = np.empty((0, *self.shape), np.float32)
        self._rows = np.empty(0, np.int64)

    @cached_property
    def names(self) -> list[str]:
        """Number the rows from 1 as the table has them; made when asked for, because a table may be long."""
        return [f"row {row}" for row in self._rows.tolist()]

    def __len__(self) -> int:
        return len(self._numbers)

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and float32 [n, F]."""
        count("size", size)
        for chunk in indices.split(size):
            if len(chunk):
                yield chunk, torch.from_numpy(self._numbers[chunk.numpy()])

    def stamps(self) -> list[str]:
        """Return the size and the time of change of the table."""
        return stamps([self.path])

    def gather(self, blocks: Iterator[Block]) -> Rows:
        """Take the rows of all blocks that can be used."""
        where = self.choice.where
        buffer, rows, known = array("f"), array("q"), dict[str, str]()
        seen = 0
        without: dict[int, str] | None = None
        for block in blocks:
            if without is None:
                without = dict(block.not_numbers)
            else:
                without = {place: text for place, text in without.items() if place in block.not_numbers}
            kept = self._kept(block, seen)
            buffer.frombytes(np.ascontiguousarray(block.numbers[kept]).tobytes())
            rows.extend((kept + seen + 1).tolist())
            if self.labels is not None and block.labels is not None:
                taken = (one_form(str(block.labels[place])) for place in kept.tolist())
                self.labels += [known.setdefault(label, label) for label in taken]  # one text for each class
            seen += len(block.numbers)
            if seen >= ENOUGH:
                _refuse(where, self.choice, without)
        _refuse(where, self.choice, without or {})
        if not rows:
            reason = f"; {self.skipped[0].name}: {self.skipped[0].why}" if self.skipped else ""
            raise ValueError(f"{where} holds no row that can be used{reason}")
        self._numbers = np.frombuffer(buffer, np.float32).reshape(-1, *self.shape)
        self._rows = np.frombuffer(rows, np.int64)
        self.remarks += lonely(self.labels or [])
        return self

    def _kept(self, block: Block, seen: int) -> npt.NDArray[np.int64]:
        """Return the places of the rows that can be used, and list the others."""
        finite = np.isfinite(block.numbers)
        unlabelled = [] if block.labels is None else [place for place, text in enumerate(block.labels) if not text]
        bad = set(block.whys) | set(unlabelled) | set(np.flatnonzero(~finite.all(axis=1)).tolist())
        for place in sorted(bad):
            if place in block.whys:
                why = block.whys[place]
            elif not finite[place].all():
                column = self.choice.names[int(finite[place].argmin())]
                why = f"column {short(column)!r} is missing or not finite"
            else:
                why = "it has no label"
            line = "" if block.lines is None else f" (line {block.lines[place]})"
            self.skipped.append(Skipped(f"row {seen + place + 1}", why + line))
        if len(self.skipped) > ceilings.UNUSABLE:
            first = self.skipped[0]
            raise ValueError(
                f"{self.choice.where}: more than {ceilings.UNUSABLE:,} rows cannot be used; {first.name}: {first.why}"
            )
        return np.array([place for place in range(len(finite)) if place not in bad], np.int64)


def _refuse(where: str, choice: Choice, without: dict[int, str]) -> None:
    """Name a column that holds no numbers."""
    for place, text in without.items():
        name = choice.names[place]
        what = f"holds text in every row, such as {text!r}" if text else "is empty in every row"
        raise ValueError(f"{where}: column {short(name)!r} {what}: leave it out, or turn it into numbers")
