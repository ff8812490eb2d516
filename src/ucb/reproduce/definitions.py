"""What stands in each table: its rows, the paper's row beside each, and what differs in the run. From one data file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from ucb.bayes.checks import nearest


@dataclass(frozen=True)
class PaperRow:
    """Which row of the paper's table, and in which columns ACC and BWT stand."""

    row: str
    of: Mapping[str, float | str] = field(default_factory=dict)
    acc: str = "ACC"
    bwt: str = "BWT"


QUOTED = "the paper quotes this figure from another work, with another net and training"


@dataclass(frozen=True)
class Row:
    """One row of ours. What is None or empty is the method's, the recipe's or the benchmark's own choice."""

    method: str | None
    """None where ``obstacle`` says why it cannot be run."""
    variant: str = ""
    paper: PaperRow | None = None
    """None for rows that only we have."""
    benchmark: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of method, training and net that differ from the recipe's."""
    tasks: int | None = None
    single_head: bool = False
    apart: bool = False
    """With a single head: an output for each class of each task."""
    task_told: bool = False
    """With a single head: the task is told at test time."""
    net: str | None = None
    faces: str | None = None
    budget: int | None = None
    """Stored values of the net, to which an MLP's width is matched: mu and rho count as two."""
    recipe: str = ""
    """A folder of recipes that goes before the benchmark's own."""
    better_of: str = ""
    """Of the rows with the same word here the better one is shown."""
    same_as: str = ""
    """TABLE/ROW whose runs serve this row too."""
    note: str = ""
    """Why the paper's figure may not be reached, where that is known."""
    remark: str = ""
    """What must be known to read the row's figure, whatever it is."""
    quoted: bool = False
    """Whether the paper has its figure from another work."""
    obstacle: str = ""

    @property
    def name(self) -> str:
        """The row's name in files and commands."""
        return "-".join(part for part in (self.method, self.variant) if part)


@dataclass(frozen=True)
class Table:
    """A table of ours. ``paper`` names the paper's: the first has the figures, a second their spreads."""

    id: str
    about: str
    paper: tuple[str, ...]
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        """Return the row of that name."""
        known = {row.name: row for row in self.rows}
        if name not in known:
            raise ValueError(f"the table {self.id} has no row {name!r}: {nearest(name, known)}")
        return known[name]


@cache
def tables() -> dict[str, Table]:
    """Return every table by its id."""
    values = json.loads((files("ucb.reproduce") / "tables.json").read_text())
    return {each["id"]: from_values(each) for each in values["tables"]}


def table_named(name: str) -> Table:
    """Return the table with that id; for a wrong one the nearest right ones are offered."""
    if name not in tables():
        raise ValueError(f"there is no table {name!r}: {nearest(name, tables())}")
    return tables()[name]


def from_values(values: Mapping[str, Any]) -> Table:
    """Return a table from plain values; what all rows share may stand beside them."""
    shared = {name: values[name] for name in ("benchmark", "budget", "faces", "recipe") if name in values}
    rows = []
    for row in values["rows"]:
        paper = row.get("paper")
        made = PaperRow(**paper) if isinstance(paper, Mapping) else None if paper is None else PaperRow(paper)
        rows.append(Row(**{**shared, **row, "paper": made}))
    return Table(values["id"], values["about"], tuple(values["paper"]), tuple(rows))


def home_of(table: Table, row: Row) -> tuple[Table, Row]:
    """Return the table and the row under which a row's runs are kept."""
    if not row.same_as:
        return table, row
    other, _, name = row.same_as.partition("/")
    home = table_named(other)
    return home, home.row(name)
