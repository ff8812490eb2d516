"""Tables as text: UTF-8, a first line that names the columns, values between commas, semicolons or tabs."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TextIO

import numpy as np

from ucb.storage import ceilings, opened
from ucb.waves.sources.columns import Choice, choose
from ucb.waves.sources.examples import Shape
from ucb.waves.sources.rows import Block, Rows
from ucb.waves.sources.words import short, shown

SEPARATORS = ",;\t"
VALUES = 1 << 18
"""So many values are read before they become an array."""


def read_csv(
    path: Path, like: Shape | None, *, labelled: bool, label: str | None = None, columns: list[str] | None = None
) -> Rows:
    """Read a table from a text file."""
    where = shown(str(path))
    try:
        with io.TextIOWrapper(opened(path, ceilings.TABLE), encoding="utf-8-sig", newline="") as file:
            mark, texts = _separator(file), _Lines(where, file)
            lines = csv.reader(texts, delimiter=mark, strict=True)
            try:
                header = next((fields for fields in lines if fields), None)
                if header is None:
                    raise ValueError(f"{where} is empty")
                if all(number(name) is not None for name in header):
                    raise ValueError(f"{where}: its first line must name the columns, and it holds numbers only")
                choice = choose(where, header, labelled=labelled, label=label, columns=columns, like=like)
                return Rows(path, choice, choice.names).gather(_blocks(lines, texts, len(header), choice))
            except csv.Error as error:
                raise ValueError(f"{where}, line {lines.line_num}: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text") from None


def number(text: str) -> float | None:
    """Return a text as a number, or None. Python's ``1_000`` is not meant."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def fault(name: str, text: str) -> str:
    """Say what is wrong with a value that is no number."""
    if not text.strip():
        return f"column {short(name)!r} is empty"
    return f"column {short(name)!r} holds {short(text)!r}, which is no number"


class _Lines:
    """The lines of a file. A row, which may have many, is refused while it is read if it becomes too long."""

    def __init__(self, where: str, file: TextIO) -> None:
        self.where, self.file = where, file
        self.row = 0
        """Characters of the present row; whoever has it whole sets this back."""

    def __iter__(self) -> Iterator[str]:
        while line := self.file.readline(ceilings.LINE + 1):
            self.row += len(line)
            if self.row > ceilings.LINE:
                raise ValueError(f"{self.where}: a row has more than {ceilings.LINE:,} characters")
            yield line


def _separator(file: TextIO) -> str:
    """Return what parts the names of the columns: of several candidates the one that makes most of them."""
    first = ""
    while not first.strip() and (line := file.readline(1 << 20)):
        first = line
    file.seek(0)
    return max(SEPARATORS, key=lambda mark: _fields(first, mark))


def _fields(line: str, mark: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=mark), []))
    except csv.Error:  # with a wrong mark a long line is one field, and longer than any may be
        return 1


def _blocks(lines: Iterator[list[str]], texts: _Lines, width: int, choice: Choice) -> Iterator[Block]:
    size = max(1, VALUES // width)
    fields: list[tuple[int, list[str] | int]] = []
    texts.row = 0
    for row in lines:
        texts.row = 0
        if row:
            fields.append((lines.line_num, row if len(row) == width else len(row)))  # type: ignore[attr-defined]
        if len(fields) == size:
            yield _block(fields, width, choice)
            fields = []
    if fields:
        yield _block(fields, width, choice)


def _block(fields: list[tuple[int, list[str] | int]], width: int, choice: Choice) -> Block:
    """Return rows of texts as numbers; of a row of another width only that is told."""
    numbers, labels, whys = array("f"), list[str | None](), dict[int, str]()
    nothing = [float("nan")] * len(choice.positions)
    without: dict[int, str] | None = None
    for place, (_, row) in enumerate(fields):
        if isinstance(row, int):
            whys[place] = f"it has {row} values for {width} columns"
            numbers.fromlist(nothing)
            labels.append(None)
            continue
        texts = _taken(row, choice.positions)
        labels.append(None if choice.label is None else row[choice.label].strip())
        try:
            if "_" in "".join(texts):
                raise ValueError
            numbers.fromlist(list(map(float, texts)))
            without = {}
        except ValueError:
            bad = {column: text for column, text in enumerate(texts) if number(text) is None}
            whys[place] = fault(*next((choice.names[column], text) for column, text in bad.items()))
            numbers.fromlist(nothing)
            if without is None:
                without = {column: short(text.strip()) for column, text in bad.items()}
            else:
                without = {
                    column: text or short(bad[column].strip()) for column, text in without.items() if column in bad
                }
    found = np.frombuffer(numbers, np.float32).reshape(len(fields), -1)
    seen = labels if choice.label is not None else None
    return Block(found, seen, [line for line, _ in fields], whys, without or {})


def _taken(row: Sequence[str], positions: Sequence[int]) -> Sequence[str]:
    """Return the texts at some places of a row."""
    return (row[positions[0]],) if len(positions) == 1 else itemgetter(*positions)(row)
