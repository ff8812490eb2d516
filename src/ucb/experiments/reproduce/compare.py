"""Ours beside the paper's: mean and spread over seeds, the difference, the verdict, and what must be known of it.

The verdict says whether our ACC is within what may be expected of the paper's figure, above it or below it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ucb.experiments.reproduce import paper
from ucb.experiments.reproduce.definitions import ReproducedRow, ReproducedTable, differences, home_of, job_of
from ucb.experiments.reproduce.planning import DamagedResultError, results_of

WITHIN, ABOVE, BELOW = "within", "above", "below"
NOT_MEASURED, CANNOT = "not measured", "cannot be run"
LEAST, MOST = 0.1, 1.0
"""Points between which the allowed difference stays: seeds that agree by chance must not make the rule too strict, and
seeds that scatter must not excuse everything."""
QUOTED = "the paper quotes this figure from another work, with another net and training"
NO_RECIPE = "no recipe: the method's defaults"
WITHOUT_SPREAD = 1.0
"""Points that ACC may differ where no spread is known."""
RULE = (
    f"within: ACC differs by at most twice the combined spread "
    f"(at least {LEAST:g}, at most {MOST:g} point; {WITHOUT_SPREAD:g} where no spread is known)"
)
"""What the verdicts mean, in a line."""


@dataclass(frozen=True)
class Measure:
    """A figure with its spread, if one is known."""

    value: float
    spread: float | None = None
    digits: int = 2
    """Decimals that are known of the value."""


def allowed_difference(ours: Measure, theirs: Measure) -> float:
    """Return how many points may lie between two figures: twice the combined spread, within its bounds."""
    spreads = [each.spread for each in (ours, theirs) if each.spread is not None]
    return min(max(2 * math.hypot(*spreads), LEAST), MOST) if spreads else WITHOUT_SPREAD


def verdict_of(ours: Measure, theirs: Measure) -> str:
    """Return ``within``, ``above`` or ``below``.

    The paper's figure is rounded: half a unit of its last printed digit is allowed on top, on both sides.
    """
    difference = ours.value - theirs.value
    if abs(difference) <= allowed_difference(ours, theirs) + 0.5 * 10.0**-theirs.digits:
        return WITHIN
    return ABOVE if difference > 0 else BELOW


@dataclass(frozen=True)
class ComparedRow:
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
    """Empty for a row that only we have, and for one whose seeds had different settings."""
    weights: int | None = None
    stored_values: int | None = None
    notes: tuple[str, ...] = ()
    other_settings: bool = False
    """Whether some of its runs had other settings than they would have now."""

    @property
    def difference(self) -> float | None:
        """Our ACC less the paper's."""
        return None if self.acc is None or self.paper_acc is None else self.acc.value - self.paper_acc.value


def compare_table(table: ReproducedTable, results: Path = Path("results")) -> list[ComparedRow]:
    """Return the lines of a table; of rows that stand for one row of the paper together, the better."""
    lines: dict[str, list[ComparedRow]] = {}
    damaged = []
    for row in table.rows:
        try:
            lines.setdefault(row.better_of or row.name, []).append(_compare_row(table, row, results))
        except DamagedResultError as error:
            damaged += str(error).splitlines()
    if damaged:  # all at once: nobody should mend them one after the other
        raise DamagedResultError("\n".join(dict.fromkeys(damaged)))
    return [choose_better(group) for group in lines.values()]


def choose_better(lines: Sequence[ComparedRow]) -> ComparedRow:
    """Return the line with the highest ACC; it says that test data chose it, and which others there are."""
    if len(lines) == 1:
        return lines[0]
    best = max(lines, key=lambda line: -math.inf if line.acc is None else line.acc.value)
    others = [
        f"{line.name} {'is not measured yet' if line.acc is None else f'has {line.acc.value:.2f}'}"
        for line in lines
        if line is not best
    ]
    return replace(best, notes=(*best.notes, f"the better of {len(lines)} by test ACC: {', '.join(others)}"))


def _compare_row(table: ReproducedTable, row: ReproducedRow, results: Path) -> ComparedRow:
    found = results_of(table, row, results)
    acc, bwt = measure_over_seeds(found, "acc"), measure_over_seeds(found, "bwt")
    title = paper_acc = paper_bwt = None
    notes: list[str] = []
    if row.paper is not None:
        title = paper.table(table.paper[0]).row(row.paper.row, row.paper.of).title
        paper_acc, said_acc = paper_measure(table, row, row.paper.acc)
        paper_bwt, said_bwt = paper_measure(table, row, row.paper.bwt)
        notes += said_acc + said_bwt
    own = home_of(table, row)[1]
    groups = group_by_difference(own, found)
    verdict = ""
    if row.obstacle:
        verdict, notes = CANNOT, [*notes, row.obstacle]
    elif acc is None:
        verdict = NOT_MEASURED
    elif paper_acc is not None and len(groups) == 1:
        verdict = verdict_of(acc, paper_acc)
        notes += [row.note] if verdict == BELOW and row.note else []
        notes += [QUOTED] if verdict != WITHIN and row.quoted else []
    notes += [row.remark] if acc is not None and row.remark else []
    return ComparedRow(
        row.name,
        title,
        row.method,
        tuple(result["seed"] for result in found),
        *(acc, bwt, paper_acc, paper_bwt),
        verdict,
        weights=found[0].get("weights") if found else None,
        stored_values=found[0].get("stored_values") if found else None,
        notes=(*notes, *describe_settings(own, groups)),
        other_settings=any(groups),
    )


def group_by_difference(row: ReproducedRow, found: Sequence[dict[str, Any]]) -> dict[tuple[str, ...], list[int]]:
    """Return the seeds whose runs differ from what would be run now in the same settings; without any is the key ()."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for result in found if row.method is not None else ():
        differs = differences(result["config"], job_of(row, result["seed"]))
        groups.setdefault(tuple(differs), []).append(result["seed"])
    return groups


def describe_settings(row: ReproducedRow, groups: dict[tuple[str, ...], list[int]]) -> list[str]:
    """Say which runs had other settings than now, whether all had the same, and whether anybody chose them."""
    mixed = len(groups) > 1
    notes = ["the seeds were run with different settings: no verdict"] if mixed else []
    for differs, seeds in groups.items():
        if differs:
            whose = f"the runs of seed {', '.join(map(str, seeds))}" if mixed else "its runs"
            notes.append(f"{whose} had other settings than now: {'; '.join(differs)}")
        elif not row.has_recipe:
            but = ", ".join(f"{name} {value}" for name, value in row.settings.items())
            notes.append(f"{NO_RECIPE}, but {but}" if but else NO_RECIPE)
    return notes


def measure_over_seeds(results: Sequence[dict[str, Any]], name: str) -> Measure | None:
    """Return mean and standard deviation of a figure; one seed has no spread."""
    values = [result[name] for result in results if result[name] is not None]
    return Measure(mean(values), stdev(values) if len(values) > 1 else None) if values else None


def paper_measure(table: ReproducedTable, row: ReproducedRow, column: str) -> tuple[Measure | None, list[str]]:
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
