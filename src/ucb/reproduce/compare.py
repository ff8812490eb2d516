"""Ours beside the paper's: mean and spread over seeds, the difference, and whether the paper's figure is matched."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ucb import paper
from ucb.reproduce.definitions import Row, Table, home_of
from ucb.reproduce.jobs import ROOM, completed

WITHOUT_SPREAD = 1.0
"""Points that ACC may be below the paper's where no spread is known."""
MATCHED, NOT_MATCHED, NOT_MEASURED, CANNOT = "matched", "not matched", "not measured", "cannot be run"


@dataclass(frozen=True)
class Measure:
    """A figure with its spread, if one is known."""

    value: float
    spread: float | None = None
    digits: int = 2
    """Decimals that are known of the value."""


@dataclass(frozen=True)
class Line:
    """One row as it is shown. A figure that does not exist is None."""

    name: str
    paper_row: str | None
    method: str | None
    seeds: tuple[int, ...]
    acc: Measure | None
    bwt: Measure | None
    paper_acc: Measure | None
    paper_bwt: Measure | None
    verdict: str
    """Empty for a row that only we have."""
    weights: int | None = None
    stored_values: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """Our ACC less the paper's."""
        return None if self.acc is None or self.paper_acc is None else self.acc.value - self.paper_acc.value


def compared(table: Table, results: Path = Path("results")) -> list[Line]:
    """Return the lines of a table; of rows that stand for one row of the paper together, the better."""
    lines: dict[str, list[Line]] = {}
    for row in table.rows:
        lines.setdefault(row.better_of or row.name, []).append(_line(table, row, results))
    return [better(group) for group in lines.values()]


def better(lines: Sequence[Line]) -> Line:
    """Return the line with the highest ACC; it says which others there are."""
    if len(lines) == 1:
        return lines[0]
    best = max(lines, key=lambda line: -math.inf if line.acc is None else line.acc.value)
    others = [
        f"{line.name} {'is not measured yet' if line.acc is None else f'has {line.acc.value:.2f}'}"
        for line in lines
        if line is not best
    ]
    return Line(**{**vars(best), "notes": (*best.notes, f"the better of {len(lines)}: {', '.join(others)}")})


def results_of(table: Table, row: Row, results: Path) -> list[dict[str, Any]]:
    """Return a row's results, in the order of their seeds."""
    home, kept = home_of(table, row)
    pattern = re.compile(re.escape(kept.name) + r"-seed(\d+)\.json")
    folder = results / ROOM / home.id
    found = {}
    for path in folder.glob(f"{kept.name}-seed*.json") if folder.is_dir() else ():
        if match := pattern.fullmatch(path.name):
            found[int(match[1])] = json.loads(path.read_text())
    return [found[seed] for seed in sorted(found)]


def _line(table: Table, row: Row, results: Path) -> Line:
    found = results_of(table, row, results)
    acc, bwt = over_seeds(found, "acc"), over_seeds(found, "bwt")
    theirs, title, notes = None, None, []
    paper_acc = paper_bwt = None
    if row.paper is not None:
        theirs = paper.table(table.paper[0]).row(row.paper.row, row.paper.of)
        title = theirs.title
        paper_acc, said_acc = papers(table, row, row.paper.acc)
        paper_bwt, said_bwt = papers(table, row, row.paper.bwt)
        notes += said_acc + said_bwt
    verdict = ""
    if row.obstacle:
        verdict, notes = CANNOT, [*notes, row.obstacle]
    elif acc is None:
        verdict = NOT_MEASURED
    elif paper_acc is not None:
        verdict = MATCHED if is_matched(acc, paper_acc) else NOT_MATCHED
        if verdict == NOT_MATCHED and row.note:
            notes.append(row.note)
    if len({_plain(result["config"]) for result in found}) > 1:
        notes.append("the seeds were run with different settings")
    seeds = tuple(result["seed"] for result in found)
    size = {name: found[0].get(name) if found else None for name in ("weights", "stored_values")}
    return Line(row.name, title, row.method, seeds, acc, bwt, paper_acc, paper_bwt, verdict, notes=tuple(notes), **size)


def _plain(config: dict[str, Any]) -> str:
    """Return what the seeds of one row must agree in."""
    known = completed(config)
    return json.dumps({name: known[name] for name in known if name not in ("seed", "device")}, sort_keys=True)


def over_seeds(results: Sequence[dict[str, Any]], name: str) -> Measure | None:
    """Return mean and standard deviation of a figure; one seed has no spread."""
    values = [result[name] for result in results if result[name] is not None]
    if not values:
        return None
    return Measure(mean(values), stdev(values) if len(values) > 1 else None)


def papers(table: Table, row: Row, column: str) -> tuple[Measure | None, list[str]]:
    """Return the paper's figure with its spread, and what the paper says of it elsewhere, if that differs."""
    assert row.paper is not None
    cells = [paper.table(name).row(row.paper.row, row.paper.of).figure(column) for name in table.paper]
    found = [cell for cell in cells if cell is not None]
    if not found:
        return None, []
    first, *others = found
    agreeing = [cell.spread for cell in found if cell.value == first.value and cell.spread is not None]
    notes = [
        f"the paper's {column} is {first.value:g} in one table and {cell.value:g} in another"
        for cell in others
        if cell.value != first.value
    ]
    return Measure(first.value, agreeing[0] if agreeing else None, paper.table(first.table).digits(column)), notes


def is_matched(ours: Measure, theirs: Measure) -> bool:
    """Whether ACC is at most twice the combined spread below the paper's, or a point where no spread is known."""
    spreads = [each.spread for each in (ours, theirs) if each.spread is not None]
    allowed = 2 * math.hypot(*spreads) if spreads else WITHOUT_SPREAD
    return ours.value - theirs.value >= -allowed - 0.5 * 10.0**-theirs.digits  # the paper's figures are rounded
