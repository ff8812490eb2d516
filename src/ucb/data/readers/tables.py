"""Tables: which columns are the label and the numbers, rows of numbers gathered block by block, and tables as text.

A row with a value that is missing, not finite or no number is left out and listed. A column that has a number in no row
is named in an error instead. A text table is UTF-8; its first line names the columns, and commas, semicolons or tabs
part its values.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from ucb.data.readers import reader
from ucb.data.readers.reader import InOneFile, Shape, Skipped, as_text, count_words, find_lonely, one_form, quote, short
from ucb.storage import ceilings, open_checked

USUAL_LABELS = ("label", "class", "target")
PANDAS_INDEX = "__index_level_"
NOT_THE_MODELS = ("column is not the model's and is left out", "columns are not the model's and are left out")
ENOUGH = 1000
"""After so many rows without a single number in a column it is taken for text."""
SEPARATORS = ",;\t"
VALUES = 1 << 18
"""So many values of a text table are read before they become an array."""


@dataclass(frozen=True)
class ColumnChoice:
    """The positions of the label, if it is asked for, and of the numbers; the numbers' names; what was left out."""

    where: str
    label: int | None
    positions: list[int]
    names: list[str]
    remarks: list[str]


Chooser = Callable[[str, Sequence[str]], ColumnChoice]
"""Chooses the columns of a table, which is named, by its header."""


def choose(
    where: str,
    header: Sequence[str],
    *,
    with_labels: bool,
    label: str | None = None,
    columns: list[str] | None = None,
    like: Shape | None = None,
) -> ColumnChoice:
    """Choose a table's columns by their names.

    With ``columns``, those of the model, they are found in any order, others are left out with a remark, and missing
    ones are named. Without, all columns but the label are the numbers. Columns without a name (as a saved index has)
    are left out.
    """
    if len(header) > ceilings.COLUMNS:
        raise ValueError(f"{where} has {len(header):,} columns, and {ceilings.COLUMNS:,} are the most")
    names = [one_form(name).strip() for name in header]
    named = [place for place, name in enumerate(names) if name and not name.startswith(PANDAS_INDEX)]
    if twice := [name for name, times in Counter(names[place] for place in named).items() if times > 1]:
        raise ValueError(f"{where}: more than one column is called {short(twice[0])!r}")
    at = {names[place]: place for place in named}
    wanted = None if columns is None else [one_form(name).strip() for name in columns]
    own = set(wanted or ())
    label_at = _label(where, at, label, own) if with_labels else None
    remarks = []
    if nameless := len(names) - len(named):
        remarks.append(count_words(nameless, "column without a name is left out", "columns without names are left out"))
    if wanted is not None:
        if missing := [name for name in wanted if name not in at]:
            raise ValueError(f"{where} lacks {count_words(len(missing), 'column', 'columns')}: {quote(missing)}")
        positions = [at[name] for name in wanted]
        ignored = [name for name, place in at.items() if name not in own and place != label_at]
    else:
        positions = [place for place in named if place != label_at]
        ignored = []
        usual = _usual(at)
        if not with_labels and like is not None and len(positions) == like[0] + 1 and len(usual) == 1:
            ignored = usual
            positions.remove(at[usual[0]])
    if ignored:
        remarks.append(f"{count_words(len(ignored), *NOT_THE_MODELS)}: {quote(ignored)}")
    if not positions:
        raise ValueError(f"{where} has no columns of numbers beside its label")
    if like is not None and len(positions) != like[0]:
        raise ValueError(f"{where} has {len(positions)} columns of numbers, and the model learnt rows of {like[0]}")
    return ColumnChoice(where, label_at, positions, [names[place] for place in positions], remarks)


def _label(where: str, at: dict[str, int], label: str | None, wanted: Collection[str]) -> int:
    """Return the position of the label's column."""
    if label is not None:
        name = one_form(label).strip()
        if name not in at:
            raise ValueError(f"{where} has no column {label!r}: it has {quote(list(at))}")
        if name in wanted:
            raise ValueError(f"{where}: column {label!r} is one of the model's numbers, so it cannot be the label")
        return at[name]
    usual = _usual(at, wanted)
    if len(usual) != 1:
        why = f"{quote(usual)} could each be the label" if usual else "no column is called label, class or target"
        raise ValueError(f"{where}: {why}: name the label's column with --label, one of {quote(list(at))}")
    return at[usual[0]]


def _usual(at: dict[str, int], wanted: Collection[str] = ()) -> list[str]:
    return [name for name in at if name.casefold() in USUAL_LABELS and name not in wanted]


@dataclass
class RowBlock:
    """Some rows of a table: ``numbers`` [n, F], their labels, and the lines they end in, if these are known.

    ``whys`` says of a row why it cannot be used, ``not_numbers`` shows what stands in a column that has no number in
    any row of the block.
    """

    numbers: npt.NDArray[np.float32]
    labels: Sequence[str | None] | None
    lines: Sequence[int] | None = None
    whys: dict[int, str] = field(default_factory=dict)
    not_numbers: dict[int, str] = field(default_factory=dict)


class TableRows(InOneFile):
    """Examples that are rows of a table."""

    def __init__(self, path: Path, choice: ColumnChoice, columns: list[str] | None) -> None:
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

    def values(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return float32 [n, F]."""
        return self._numbers[positions]

    def gather(self, blocks: Iterator[RowBlock]) -> TableRows:
        """Take the rows of all blocks that can be used."""
        buffer, rows, known, seen = array("f"), array("q"), dict[str, str](), 0
        without: dict[int, str] = {}
        for block in blocks:
            last = without if seen else block.not_numbers
            without = {place: text for place, text in last.items() if place in block.not_numbers}
            kept = self._find_usable(block, seen)
            buffer.frombytes(np.ascontiguousarray(block.numbers[kept]).tobytes())
            rows.extend((kept + seen + 1).tolist())
            if self.labels is not None and block.labels is not None:
                self.labels += reader.share_texts((block.labels[place] for place in kept.tolist()), known)
            seen += len(block.numbers)
            if seen >= ENOUGH:
                _refuse_text(self.choice, without)
        _refuse_text(self.choice, without)
        if not rows:
            raise ValueError(f"{self.choice.where} holds no row that can be used{reader.say_first('; ', self.skipped)}")
        self._numbers = np.frombuffer(buffer, np.float32).reshape(-1, *self.shape)
        self._rows = np.frombuffer(rows, np.int64)
        self.remarks += find_lonely(self.labels or [])
        return self

    def _find_usable(self, block: RowBlock, seen: int) -> npt.NDArray[np.int64]:
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
            said = f"more than {ceilings.UNUSABLE:,} rows cannot be used; {self.skipped[0]}"
            raise ValueError(f"{self.choice.where}: {said}")
        return np.array([place for place in range(len(finite)) if place not in bad], np.int64)


def _refuse_text(choice: ColumnChoice, without: dict[int, str]) -> None:
    """Name a column that holds no numbers."""
    for place, text in without.items():
        name = choice.names[place]
        what = f"holds text in every row, such as {text!r}" if text else "is empty in every row"
        raise ValueError(f"{choice.where}: column {short(name)!r} {what}: leave it out, or turn it into numbers")


def read_csv(path: Path, choose: Chooser) -> TableRows:
    """Read a table from a text file."""
    where = as_text(str(path))
    try:
        with io.TextIOWrapper(open_checked(path, ceilings.TABLE), encoding="utf-8-sig", newline="") as file:
            mark, texts = _separator(file), _Lines(where, file)
            lines = csv.reader(texts, delimiter=mark, strict=True)
            try:
                header = next((fields for fields in lines if fields), None)
                if header is None:
                    raise ValueError(f"{where} is empty")
                if all(parse_number(name) is not None for name in header):
                    raise ValueError(f"{where}: its first line must name the columns, and it holds numbers only")
                choice = choose(where, header)
                return TableRows(path, choice, choice.names).gather(_blocks(lines, texts, len(header), choice))
            except csv.Error as error:
                raise ValueError(f"{where}, line {lines.line_num}: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text") from None


def parse_number(text: str) -> float | None:
    """Return a text as a number, or None. ``1_000``, which Python reads, is no number here."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def describe_fault(name: str, text: str) -> str:
    """Say what is wrong with a value that is no number."""
    if not text.strip():
        return f"column {short(name)!r} is empty"
    return f"column {short(name)!r} holds {short(text)!r}, which is no number"


class _Lines:
    """The lines of a file. A row, which may have many, is refused while it is read if it becomes too long."""

    def __init__(self, where: str, file: TextIO) -> None:
        self.where, self.file = where, file
        self.row = 0
        """Characters of the present row so far; the caller sets it to 0 after each row."""

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


def _blocks(lines: Iterator[list[str]], texts: _Lines, width: int, choice: ColumnChoice) -> Iterator[RowBlock]:
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


def _block(fields: list[tuple[int, list[str] | int]], width: int, choice: ColumnChoice) -> RowBlock:
    """Return rows of texts as numbers; of a row of another width only that is told."""
    numbers, labels, whys = array("f"), list[str | None](), dict[int, str]()
    nothing = [float("nan")] * len(choice.positions)
    first, pick = choice.positions[0], itemgetter(*choice.positions)
    without: dict[int, str] | None = None
    for place, (_, row) in enumerate(fields):
        if isinstance(row, int):
            whys[place] = f"it has {row} values for {width} columns"
            numbers.fromlist(nothing)
            labels.append(None)
            continue
        texts = (row[first],) if len(choice.positions) == 1 else pick(row)
        labels.append(None if choice.label is None else row[choice.label].strip())
        try:
            if "_" in "".join(texts):
                raise ValueError
            numbers.fromlist(list(map(float, texts)))
            without = {}
        except ValueError:
            bad = {column: text for column, text in enumerate(texts) if parse_number(text) is None}
            whys[place] = describe_fault(*next((choice.names[column], text) for column, text in bad.items()))
            numbers.fromlist(nothing)
            seen = dict.fromkeys(bad, "") if without is None else without
            without = {column: text or short(bad[column].strip()) for column, text in seen.items() if column in bad}
    found = np.frombuffer(numbers, np.float32).reshape(len(fields), -1)
    given = labels if choice.label is not None else None
    return RowBlock(found, given, [line for line, _ in fields], whys, without or {})
