"""The paper's tables as data: every figure with its table, row, column and spread.

Where the paper contradicts itself both figures are here, each with where it stands: see :func:`contradictions`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from ucb.checks import nearest


@dataclass(frozen=True)
class Figure:
    """One number of the paper, and what it is of."""

    table: str
    row: str
    column: str
    value: float
    spread: float | None = None
    """The standard deviation over three runs, where the paper gives one."""


@dataclass(frozen=True)
class PaperRow:
    """A row: the paper's name of the method, and what tells it from other rows of that name."""

    name: str
    of: Mapping[str, float | str]
    figures: tuple[Figure, ...]
    marks: tuple[str, ...] = ()
    """``quoted``: from another paper. ``bound``: the paper's star, a method outside continual learning."""

    @property
    def title(self) -> str:
        """The name with what tells the row apart."""
        return ", ".join([self.name, *(word for key, value in self.of.items() if (word := _word(key, value)))])

    def figure(self, column: str) -> Figure | None:
        """Return the figure in a column, or None where the paper has a dash."""
        return next((figure for figure in self.figures if figure.column == column), None)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper. ``label`` is its name in the paper's source, ``of`` the columns that tell rows apart."""

    id: str
    label: str
    part: str
    caption: str
    of: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]

    def row(self, name: str, of: Mapping[str, float | str] | None = None) -> PaperRow:
        """Return the row of that name; ``of`` tells rows of one name apart."""
        found = [row for row in self.rows if row.name == name and row.of == (of or {})]
        if len(found) != 1:
            raise KeyError(f"the paper's table {self.id} has {len(found)} rows {name!r} with {dict(of or {})}")
        return found[0]

    def digits(self, column: str) -> int:
        """Return how many decimals the paper prints in a column."""
        values = (figure.value for row in self.rows for figure in row.figures if figure.column == column)
        return max(len(repr(value).partition(".")[2].rstrip("0")) for value in values)


@dataclass(frozen=True)
class Stated:
    """A figure, and where it stands: in a cell of a table, in a section's text, or outside the paper."""

    value: float
    table: str | None = None
    row: str | None = None
    of: Mapping[str, float | str] = field(default_factory=dict)
    column: str | None = None
    text: str | None = None
    """The section whose text says it."""
    elsewhere: str | None = None


@dataclass(frozen=True)
class Contradiction:
    """Figures that should agree and do not, and a sentence about them."""

    about: str
    stated: tuple[Stated, ...]
    note: str


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((files("ucb.experiments.reproduce") / "paper.json").read_text())
    return content


@cache
def tables() -> tuple[PaperTable, ...]:
    """Return all tables, in the paper's order."""
    return tuple(_table(**values) for values in _content()["tables"])


def table(name: str) -> PaperTable:
    """Return the table with that id."""
    known = {each.id: each for each in tables()}
    if name not in known:
        raise ValueError(f"the paper has no table {name!r}: {nearest(name, known)}")
    return known[name]


@cache
def contradictions() -> tuple[Contradiction, ...]:
    """Return all that were found."""
    return tuple(
        Contradiction(each["about"], tuple(Stated(**stated) for stated in each["stated"]), each["note"])
        for each in _content()["contradictions"]
    )


def _table(id: str, of: list[str], columns: list[str], rows: list[dict[str, Any]], **head: str) -> PaperTable:
    made = []
    for row in rows:
        found = [figure for column in columns for figure in _figures(id, row["name"], column, row[column])]
        made.append(PaperRow(row["name"], row.get("of", {}), tuple(found), tuple(row.get("marks", ()))))
    return PaperTable(id, **head, of=tuple(of), columns=tuple(columns), rows=tuple(made))


def _figures(table: str, row: str, column: str, cell: Any) -> list[Figure]:
    """Return the numbers of a cell: none for a dash, several where the paper gives choices."""
    if cell is None:
        return []
    if isinstance(cell, dict):
        return [Figure(table, row, column, value) for value in cell["choices"]]
    return [Figure(table, row, column, *(cell if isinstance(cell, list) else [cell]))]


def _word(key: str, value: float | str) -> str:
    """Say what tells a row apart: 1.9M parameters, N = 5, or a column with a cross."""
    if isinstance(value, str):
        return {"x": key, "-": ""}.get(value, value)
    return f"{value / 1e6:g}M" if key == "parameters" else f"{key} = {value:g}"
