"""Tables: which columns are the label and what is learnt from, rows gathered block by block, and tables as text.

What a column holds is settled by the first wave (:mod:`ucb.data.readers.columns`). A row with a value of another kind,
or with a number that is not finite, is left out and listed; a missing value is none of these. A column that has nothing
but values of another kind is named in an error instead. A text table is UTF-8; its first line names the columns, and
commas, semicolons or tabs part its values.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from ucb.data.readers import reader
from ucb.data.readers.columns import (
    PLAIN,
    Cells,
    ColumnKind,
    ColumnSurvey,
    Values,
    choose_kinds,
    expand,
    parse_number,
    read_cells,
)
from ucb.data.readers.reader import InOneFile, Shape, Skipped, as_text, count_words, find_lonely, one_form, quote, short
from ucb.storage import ceilings, open_checked

USUAL_LABELS = ("label", "class", "target")
PANDAS_INDEX = "__index_level_"
NOT_THE_MODELS = ("column is not the model's and is left out", "columns are not the model's and are left out")
ENOUGH = 1000
"""After so many rows without a single value of a column's kind it is named in an error."""
SEPARATORS = ",;\t"
VALUES = 1 << 18
"""So many values of a text table are read before they become an array."""


@dataclass(frozen=True)
class ColumnChoice:
    """The positions of the label, if it is asked for, and of the other columns; their names; what was left out.

    ``kinds`` says what these columns hold; None where the first wave is yet to settle it.
    """

    where: str
    label: int | None
    positions: list[int]
    names: list[str]
    remarks: list[str]
    kinds: Sequence[ColumnKind] | None


Chooser = Callable[[str, Sequence[str]], ColumnChoice]
"""Chooses the columns of a table, which is named, by its header."""


def choose(
    where: str,
    header: Sequence[str],
    *,
    with_labels: bool,
    label: str | None = None,
    columns: list[str] | None = None,
    kinds: Sequence[ColumnKind] | None = None,
    like: Shape | None = None,
) -> ColumnChoice:
    """Choose a table's columns by their names.

    With ``columns``, those of the model, they are found in any order, others are left out with a remark, and missing
    ones are named; ``kinds`` is what they hold, None if all are plain numbers. Without, all columns but the label are
    taken. Columns without a name (as a saved index has) are left out.
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
        raise ValueError(f"{where} has no columns beside its label")
    if like is not None and kinds is None and len(positions) != like[0]:
        raise ValueError(f"{where} has {len(positions)} columns of numbers, and the model learnt rows of {like[0]}")
    if kinds is None and like is not None:
        kinds = [PLAIN] * len(positions)
    return ColumnChoice(where, label_at, positions, [names[place] for place in positions], remarks, kinds)


def settle_kinds(choice: ColumnChoice, blocks: Iterable[Sequence[Values]]) -> ColumnChoice:
    """Return a choice with the kinds of its columns, after a look at all their values, block by block.

    Columns that nothing can be learnt from are left out.
    """
    surveys = [ColumnSurvey(name) for name in choice.names]
    for block in blocks:
        for survey, values in zip(surveys, block, strict=True):
            survey.look(values)
    if not surveys[0].rows:  # an error will say so
        return replace(choice, kinds=[PLAIN] * len(surveys))
    found, remarks = choose_kinds(surveys)
    kept = [place for place, kind in enumerate(found) if kind is not None]
    if not kept:
        raise ValueError(f"{choice.where} has no column that anything can be learnt from; {remarks[0]}")
    return replace(
        choice,
        positions=[choice.positions[place] for place in kept],
        names=[choice.names[place] for place in kept],
        remarks=[*choice.remarks, *remarks],
        kinds=[kind for kind in found if kind is not None],
    )


def _label(where: str, at: dict[str, int], label: str | None, wanted: Collection[str]) -> int:
    """Return the position of the label's column."""
    if label is not None:
        name = one_form(label).strip()
        if name not in at:
            raise ValueError(f"{where} has no column {label!r}: it has {quote(list(at))}")
        if name in wanted:
            raise ValueError(f"{where}: column {label!r} is one that the model learnt from, so it cannot be the label")
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
    """Some rows of a table: a number for each value [n, columns], their labels, and the lines they end in, if known.

    ``whys`` says of a row why it cannot be used, ``strange`` shows what stands in a column that has no value of its
    kind in any row of the block.
    """

    cells: Cells
    labels: Sequence[str | None] | None
    lines: Sequence[int] | None = None
    whys: dict[int, str] = field(default_factory=dict)
    strange: dict[int, str] = field(default_factory=dict)


class TableRows(InOneFile):
    """Examples that are rows of a table."""

    def __init__(self, path: Path, choice: ColumnChoice, columns: list[str] | None) -> None:
        self.path, self.choice, self.columns = path, choice, columns
        self.all_kinds = choice.kinds or [PLAIN] * len(choice.names)
        self.shape: Shape = (sum(kind.width for kind in self.all_kinds),)
        self.labels: list[str] | None = None if choice.label is None else []
        self.skipped: list[Skipped] = []
        self.remarks = list(choice.remarks)
        self._cells = np.empty((0, len(self.all_kinds)), np.float32)
        self._rows = np.empty(0, np.int64)

    @property
    def kinds(self) -> list[ColumnKind] | None:
        """What the columns hold; None if all are plain numbers, as in an array."""
        return None if all(kind == PLAIN for kind in self.all_kinds) else list(self.all_kinds)

    @property
    def missing(self) -> list[str]:
        """The columns in which numbers or dates are missing."""
        return [self.choice.names[place] for place in np.flatnonzero(np.isnan(self._cells).any(axis=0))]

    @cached_property
    def names(self) -> list[str]:
        """Number the rows from 1 as the table has them; made when asked for, because a table may be long."""
        return [f"row {row}" for row in self._rows.tolist()]

    def __len__(self) -> int:
        return len(self._cells)

    def values(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return float32 [n, F], NaN where a number is missing."""
        return expand(self.all_kinds, self._cells[positions])

    def gather(self, blocks: Iterator[RowBlock]) -> TableRows:
        """Take the rows of all blocks that can be used."""
        buffer, rows, known, seen = array("f"), array("q"), dict[str, str](), 0
        strange: dict[int, str] = {}
        for block in blocks:
            last = strange if seen else block.strange
            strange = {place: text for place, text in last.items() if place in block.strange}
            kept = self._find_usable(block, seen)
            buffer.frombytes(np.ascontiguousarray(block.cells[kept]).tobytes())
            rows.extend((kept + seen + 1).tolist())
            if self.labels is not None and block.labels is not None:
                self.labels += reader.share_texts((block.labels[place] for place in kept.tolist()), known)
            seen += len(block.cells)
            if seen >= ENOUGH:
                self._refuse(strange)
        self._refuse(strange)
        if not rows:
            raise ValueError(f"{self.choice.where} holds no row that can be used{reader.say_first('; ', self.skipped)}")
        self._cells = np.frombuffer(buffer, np.float32).reshape(-1, len(self.all_kinds))
        self._rows = np.frombuffer(rows, np.int64)
        told = {name for name, kind in zip(self.choice.names, self.all_kinds, strict=True) if kind.tells_missing}
        if gaps := [name for name in self.missing if name not in told]:
            said = "values are missing that were there in the first wave, and count as its mean"
            self.remarks.append(f"{said}: {quote(gaps)}")
        self.remarks += find_lonely(self.labels or [])
        return self

    def _find_usable(self, block: RowBlock, seen: int) -> npt.NDArray[np.int64]:
        """Return the places of the rows that can be used, and list the others."""
        unlabelled = [] if block.labels is None else [place for place, text in enumerate(block.labels) if not text]
        bad = {**dict.fromkeys(unlabelled, "it has no label"), **block.whys}
        for place, why in sorted(bad.items()):
            line = "" if block.lines is None else f" (line {block.lines[place]})"
            self.skipped.append(Skipped(f"row {seen + place + 1}", why + line))
        if len(self.skipped) > ceilings.UNUSABLE:
            said = f"more than {ceilings.UNUSABLE:,} rows cannot be used; {self.skipped[0]}"
            raise ValueError(f"{self.choice.where}: {said}")
        return np.array([place for place in range(len(block.cells)) if place not in bad], np.int64)

    def _refuse(self, strange: dict[int, str]) -> None:
        """Name a column that holds values of another kind alone."""
        for place, text in strange.items():
            name, kind = self.choice.names[place], self.all_kinds[place].kind
            said = f"column {short(name)!r} holds no {kind} in any row, but {text!r} and the like"
            raise ValueError(f"{self.choice.where}: {said}, and the model learnt {kind}s there")


def make_block(
    choice: ColumnChoice,
    values: Sequence[Values],
    labels: Sequence[str | None] | None,
    lines: Sequence[int] | None = None,
) -> RowBlock:
    """Return rows of which the values of each column are given."""
    kinds = choice.kinds or [PLAIN] * len(values)
    cells = np.empty((len(values[0]), len(values)), np.float32)
    block = RowBlock(cells, labels, lines)
    for place, (name, kind, column) in enumerate(zip(choice.names, kinds, values, strict=True)):
        cells[:, place], faults = read_cells(name, kind, column)
        for row in np.flatnonzero(np.isinf(cells[:, place])).tolist():
            block.whys.setdefault(row, f"column {short(name)!r} is not finite")
        for row, text in faults.items():
            block.whys.setdefault(row, f"column {short(name)!r} holds {short(text)!r}, which is no {kind.kind}")
        if faults and np.isnan(cells[:, place]).all():
            block.strange[place] = short(next(iter(faults.values())).strip())
    return block


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
                if choice.kinds is None:
                    whole = map(_drop_odd, _read_rows(lines, texts, len(header)))
                    choice = settle_kinds(choice, map(partial(_pick, choice), whole))
                    file.seek(0)
                    lines = csv.reader(texts, delimiter=mark, strict=True)
                    next(fields for fields in lines if fields)
                blocks = (_block(rows, len(header), choice) for rows in _read_rows(lines, texts, len(header)))
                return TableRows(path, choice, choice.names).gather(blocks)
            except csv.Error as error:
                raise ValueError(f"{where}, line {lines.line_num}: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text") from None


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


_Rows = list[tuple[int, list[str] | int]]
"""The line that a row ends in, and its values; of a row of another length only how many it has."""


def _read_rows(lines: Iterator[list[str]], texts: _Lines, width: int) -> Iterator[_Rows]:
    """Yield some rows at a time."""
    size = max(1, VALUES // width)
    rows: _Rows = []
    texts.row = 0
    for row in lines:
        texts.row = 0
        if row:
            rows.append((lines.line_num, row if len(row) == width else len(row)))  # type: ignore[attr-defined]
        if len(rows) == size:
            yield rows
            rows = []
    if rows:
        yield rows


def _drop_odd(rows: _Rows) -> list[list[str]]:
    return [row for _, row in rows if not isinstance(row, int)]


def _pick(choice: ColumnChoice, rows: list[list[str]]) -> list[Values]:
    """Return the values of each column."""
    return [[row[place] for row in rows] for place in choice.positions]


def _block(rows: _Rows, width: int, choice: ColumnChoice) -> RowBlock:
    """Return rows of texts as numbers; of a row of another length only that is told."""
    nothing = [""] * width
    whole = [nothing if isinstance(row, int) else row for _, row in rows]
    labels = None if choice.label is None else [row[choice.label].strip() for row in whole]
    block = make_block(choice, _pick(choice, whole), labels, [line for line, _ in rows])
    odd = {place: row for place, (_, row) in enumerate(rows) if isinstance(row, int)}
    block.whys.update((place, f"it has {length} values for {width} columns") for place, length in odd.items())
    return block
