"""What the columns of a table hold: numbers, dates or text, and how each value becomes numbers.

A first wave is surveyed once: each column gets a kind, which never changes again. While a table is read, each of its
values becomes one number, NaN where it is missing; when rows are asked for, these numbers become what is learnt from:

- a number is itself; NaN stands for a missing one, and the trunk puts the mean of the first wave there. Where the first
  wave had missing ones, a second number says whether it is missing.
- a date is its days since 1970, and where it is in the year, in the week and in the day, each as a point of a circle.
- a text is 1 at two of the column's places, chosen by a hash, and 0 at the others. A missing text is a text, too.

So nothing has to be kept of any text, and new ones may come in any wave. Two texts have the same places with
probability 2 / (P (P - 1)), where P is the number of places. P is at least four times the number of texts in the first
wave (within limits), so that of all pairs of these texts 1/16 is expected to be confused: most columns have none. And
these texts, two places each, are then mostly linearly independent, and a new text is independent of them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ucb.data.readers.reader import as_labels, one_form, quote, short

NUMBER, DATE, TEXT = "number", "date", "text"
MISSING = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "-"))
"""What stands for a missing value, in lower case."""
MOSTLY = 0.9
"""The share of a column's values that must be numbers, or dates, for it to hold these."""
CIRCLES = (365.2425, 7.0, 1.0)
"""Days in a year, a week and a day."""
WIDTHS = {NUMBER: 1, DATE: 1 + 2 * len(CIRCLES)}
"""How many numbers a value becomes; one more where values may be missing."""
FEWEST, FEW, MOST = 4, 64, 256
"""Places of a text column: the fewest where there are very many columns, the fewest otherwise, and the most."""
ROOM = 1000
"""So many numbers a row becomes at most, unless it has very many columns."""
MANY = 50
"""If none of so many texts comes twice, they are names of rows, and nothing can be learnt from them."""
DISTINCT = 1 << 16
"""So many different texts of a column are told apart while it is surveyed."""
UNCLEAR = re.compile(r"[-+$€£]?\s*\d[\d\s.,'/:-]*[%$€£]?")
"""Texts that might have been meant as a number or as a date."""
LONGEST_DATE = 40
EPOCH, DAY = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november")
NUMBER_OF = {form: n for n, name in enumerate((*MONTHS, "december"), 1) for form in (name, name[:3])} | {"sept": 9}
REST = r"(?P<rest>([ T].*)?)"
FORMS = tuple(
    re.compile(form + REST)
    for form in (
        r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})",
        r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})",
        r"(?P<d>\d{1,2})[ -](?P<m>[A-Za-z]{3,9})\.?,?[ -](?P<y>\d{4})",
        r"(?P<m>[A-Za-z]{3,9})\.? (?P<d>\d{1,2}),? (?P<y>\d{4})",
    )
)
"""Dates beside those of ISO 8601 of which it is clear what is the day. Of 01/02/2024 it is not."""

Cells: TypeAlias = npt.NDArray[np.float32]
Values: TypeAlias = Sequence[str] | npt.NDArray[Any]
"""The values of a column: texts, float64 with NaN, or datetime64[us] with NaT."""


class ColumnKind(NamedTuple):
    """What a column holds, and how many numbers each of its values becomes."""

    kind: str = NUMBER
    width: int = 1

    @property
    def is_possible(self) -> bool:
        """Whether there can be such a column."""
        if self.kind == TEXT:
            return FEWEST <= self.width <= MOST
        return self.kind in WIDTHS and self.width - WIDTHS[self.kind] in (0, 1)

    @property
    def tells_missing(self) -> bool:
        """Whether a missing value is told apart from the mean."""
        return self.kind == TEXT or self.width > WIDTHS[self.kind]


PLAIN = ColumnKind()


def parse_number(text: str) -> float | None:
    """Return a text as a number, or None. ``1_000``, which Python reads, is no number here."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def parse_date(text: str) -> float | None:
    """Return the days from 1970 to a date, which may have a time; None if it is none. Without a zone it is UTC."""
    text = text.strip()
    if len(text) > LONGEST_DATE:
        return None
    for form in FORMS:
        if found := form.fullmatch(text):
            month = found["m"] if found["m"].isdigit() else NUMBER_OF.get(found["m"].lower(), 0)
            text = f"{found['y']}-{int(month):02}-{int(found['d']):02}{found['rest']}"
            break
    try:
        read = datetime.fromisoformat(text)
        return ((read if read.tzinfo else read.replace(tzinfo=UTC)) - EPOCH) / DAY
    except (ValueError, OverflowError):
        return None


def is_missing(text: str) -> bool:
    """Whether a text stands for no value."""
    return text.strip().casefold() in MISSING


def read_cells(name: str, kind: ColumnKind, values: Values) -> tuple[Cells, dict[int, str]]:
    """Return one number for each value, NaN where it is missing, and which values cannot be used: how they look."""
    if kind.kind == TEXT:
        return _read_texts(name, kind.width, values), {}
    parse = parse_number if kind.kind == NUMBER else parse_date
    if isinstance(values, np.ndarray):
        own = "f" if kind.kind == NUMBER else "M"
        if values.dtype.kind != own:
            nothing = np.full(len(values), np.nan, np.float32)
            return nothing, {row: text for row, text in enumerate(as_texts(values)) if text}
        return _to_cells(_count_days(values) if own == "M" else values), {}
    return _parse_texts(values, parse)


def expand(kinds: Sequence[ColumnKind], cells: Cells) -> Cells:
    """Return what rows [n, columns] are learnt as: [n, the sum of all widths]."""
    if all(kind == PLAIN for kind in kinds):
        return cells
    found = np.zeros((len(cells), sum(kind.width for kind in kinds)), np.float32)
    begin, rows = 0, np.arange(len(cells))
    for (kind, width), values in zip(kinds, cells.T, strict=True):
        own = found[:, begin : begin + width]
        if kind == TEXT:
            for place in np.divmod(values.astype(np.int64), width):
                own[rows, place] = 1
        else:
            own[:, 0] = values
            if kind == DATE:
                own[:, 1 : WIDTHS[DATE]] = _circle(values)
            if width > WIDTHS[kind]:
                own[:, -1] = np.isnan(values)
        begin += width
    return found


def find_marks(kinds: Sequence[ColumnKind]) -> list[bool]:
    """Return which of the numbers that a row becomes say yes or no: the places of texts, and whether one is missing."""
    return [kind.kind == TEXT or place >= WIDTHS[kind.kind] for kind in kinds for place in range(kind.width)]


def _circle(days: Cells) -> npt.NDArray[np.float64]:
    """Return the sine and the cosine of where days are in the year, in the week and in the day."""
    exact = days.astype(np.float64)
    turns = [exact / CIRCLES[0], np.floor(exact) / CIRCLES[1], exact / CIRCLES[2]]
    return np.stack([part(2 * np.pi * turn) for turn in turns for part in (np.sin, np.cos)], 1)


def _count_days(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    days = values.astype("datetime64[us]").astype(np.int64) / (DAY / timedelta(microseconds=1))
    return np.where(np.isnat(values), np.nan, days)


def _to_cells(numbers: npt.ArrayLike) -> Cells:
    with np.errstate(over="ignore", invalid="ignore"):
        cells = np.asarray(numbers, np.float64).astype(np.float32)
    cells[np.isnan(cells)] = np.nan  # a NaN may have been written with other bits
    return cells


def _parse_texts(texts: Sequence[str], parse: Callable[[str], float | None]) -> tuple[Cells, dict[int, str]]:
    if parse is parse_number and "_" not in "".join(texts):
        try:
            return _to_cells(list(map(float, texts))), {}
        except ValueError:
            pass
    known = {text: float("nan") if is_missing(text) else parse(text) for text in set(texts)}
    faults = {row: text for row, text in enumerate(texts) if known[text] is None}
    return _to_cells([float("nan") if (value := known[text]) is None else value for text in texts]), faults


def _read_texts(name: str, places: int, values: Values) -> Cells:
    """Return the two places of each text as one number, first * places + second."""
    texts = as_texts(values)
    key = hashlib.blake2b(name.encode("utf-8", "surrogatepass")).digest()
    known = {text: _find_places(text, key, places) for text in set(texts)}
    return np.array([known[text] for text in texts], np.float32)


def _find_places(text: str, key: bytes, places: int) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
    rest, first = divmod(int.from_bytes(digest, "little"), places)
    return first * places + (first + 1 + rest % (places - 1)) % places


def as_texts(values: Values) -> list[str]:
    """Return values as texts in their one form, a missing one as an empty text."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "M":
            written = np.datetime_as_string(values, unit="s").tolist()
            return ["" if text == "NaT" else text.removesuffix("T00:00:00") for text in written]
        return [text or "" for text in as_labels(values.tolist())]
    known = {text: "" if is_missing(text) else one_form(text).strip() for text in set(values)}
    return [known[text] for text in values]


class ColumnSurvey:
    """What is seen of a column in the first wave."""

    def __init__(self, name: str) -> None:
        self.name, self.example = name, ""
        self.rows = self.missing = self.numbers = self.dates = self.texts = 0
        self.different: set[str] = set()

    def look(self, values: Values) -> None:
        """Take some values in."""
        self.rows += len(values)
        if isinstance(values, np.ndarray):
            missing = int(np.isnan(values).sum())
            self.missing += missing
            if values.dtype.kind == "M":
                self.dates += len(values) - missing
            else:
                self.numbers += len(values) - missing
            return
        cells, faults = _parse_texts(values, parse_number)
        missing = int(np.isnan(cells).sum()) - len(faults)
        self.missing += missing
        self.numbers += len(values) - missing - len(faults)
        for text, times in Counter(faults.values()).items():
            self.dates += times * (parse_date(text) is not None)
        if self.numbers < self.rows - self.missing:
            self.example = self.example or short(next(iter(faults.values()), ""))
            if len(self.different) < DISTINCT:
                self.different.update(as_texts(values))
                self.texts += len(values) - missing

    @property
    def kind(self) -> str | None:
        """What the column holds; None if all its values are missing."""
        least = MOSTLY * (self.rows - self.missing)
        if self.rows == self.missing:
            return None
        return NUMBER if self.numbers >= least else DATE if self.dates >= least else TEXT

    @property
    def names_rows(self) -> bool:
        """Whether it has another text in each of many rows."""
        return self.kind == TEXT and MANY <= self.texts == len(self.different - {""})


def choose_kinds(surveys: Sequence[ColumnSurvey]) -> tuple[list[ColumnKind | None], list[str]]:
    """Return the kinds of columns, None for those that nothing can be learnt from, and remarks about them."""
    used = [each for each in surveys if each.kind is not None and not each.names_rows]
    texts = [each for each in used if each.kind == TEXT]
    fixed = {each.name: WIDTHS[str(each.kind)] + (each.missing > 0) for each in used if each.kind != TEXT}
    room = max(FEWEST, (ROOM - sum(fixed.values())) // max(1, len(texts)))
    found: list[ColumnKind | None] = []
    for each in surveys:
        if each not in used:
            found.append(None)
        elif each.kind == TEXT:
            places = min(MOST, max(FEW, 1 << (4 * len(each.different) - 1).bit_length()))
            found.append(ColumnKind(TEXT, min(places, 1 << room.bit_length() - 1)))
        else:
            found.append(ColumnKind(str(each.kind), fixed[each.name]))
    return found, list(_remark(surveys, used))


def _remark(surveys: Sequence[ColumnSurvey], used: Sequence[ColumnSurvey]) -> Iterable[str]:
    def names(some: Iterable[ColumnSurvey]) -> str:
        return quote([each.name for each in some])

    if empty := names(each for each in surveys if each.kind is None):
        yield f"left out, because all values are missing: {empty}"
    if unique := names(each for each in surveys if each.names_rows):
        yield f"left out, because no text comes twice and so none can be learnt from: {unique}"
    for kind, what in (TEXT, "text"), (DATE, "dates"):
        if own := names(each for each in used if each.kind == kind):
            yield f"taken as {what}: {own}"
    if gaps := names(each for each in used if each.missing):
        yield f"values are missing, which is learnt from, too: {gaps}"
    for each in surveys:
        if each.kind == TEXT and UNCLEAR.fullmatch(each.example):
            said = f"column {short(each.name)!r} is taken as text, such as {each.example!r}"
            yield f"{said}: write numbers as 1234.5 and dates as 2024-12-31 if it holds these"
