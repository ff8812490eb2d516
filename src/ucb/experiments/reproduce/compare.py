"""Ours beside the paper's: mean and spread over seeds, the difference, the verdict, and what must be known of it.

The verdict says whether our ACC is within what may be expected of the paper's figure, above it or below it. A table is
printed as text, Markdown, CSV, LaTeX or JSON.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ucb.experiments.reproduce import paper
from ucb.experiments.reproduce.definitions import ReproducedRow, ReproducedTable, differences, home_of, job_of
from ucb.experiments.reproduce.planning import DamagedResultError, results_of

HEADS = ("the paper's row", "ours", "seeds", "ACC", "BWT", "paper ACC", "paper BWT", "difference", "")
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
    if damaged:  # all are named at once
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
    """Say which runs had other settings than now, whether all had the same, and whether a recipe chose them."""
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


def format_text(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return plain aligned columns; below them what the verdicts mean, and the notes."""
    rows, notes = _format_cells(lines)
    widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
    signs = "<<" + ">" * (len(HEADS) - 3) + "<"  # figures stand at the right
    aligned = [
        "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True))
        for row in [HEADS, ["-" * width for width in widths], *rows]
    ]
    rule = ["", RULE] if any(line.verdict in (WITHIN, ABOVE, BELOW) for line in lines) else []
    body = [f"{table.id}: {table.about}", "", *(line.rstrip() for line in aligned), *rule, *_list_below(notes)]
    return "\n".join(body) + "\n"


def format_markdown(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return a table in Markdown, with notes below."""
    rows, notes = _format_cells(lines)
    rows = [[title, f"`{name}`", *figures] for title, name, *figures in rows]
    rows = [[cell.replace("|", r"\|") for cell in row] for row in [HEADS, ["---"] * len(HEADS), *rows]]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), *_list_below(notes)]) + "\n"


def format_latex(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return a tabular, with notes in small print below."""
    rows, notes = _format_cells(lines)
    tabular = [" & ".join(map(_escape_latex, row)) + r" \\" for row in [[*HEADS[:-1], "verdict"], *rows]]
    body = [r"% This table needs \usepackage{booktabs}.", r"\begin{tabular}{llrrrrrrl}", r"\toprule"]
    body += [tabular[0], r"\midrule", *tabular[1:], r"\bottomrule", r"\end{tabular}"]
    if notes:
        small = (_escape_latex(f"({number}) {note}") for number, note in enumerate(notes, 1))
        body += [r"\par\smallskip", *(rf"{{\footnotesize\noindent {note}\par}}" for note in small)]
    return "\n".join(body) + "\n"


def format_csv(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return every figure in a column of its own, unrounded."""
    written = io.StringIO()
    rows = [flatten_row(table, line) for line in lines]
    writer = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def format_json(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return everything as one JSON object."""
    rows = [{**asdict(line), "difference": line.difference} for line in lines]
    return json.dumps({"table": table.id, "about": table.about, "rows": rows}, indent=1) + "\n"


FORMATS: dict[str, Callable[[ReproducedTable, Sequence[ComparedRow]], str]] = {
    "text": format_text,
    "md": format_markdown,
    "csv": format_csv,
    "tex": format_latex,
    "json": format_json,
}


def flatten_row(table: ReproducedTable, line: ComparedRow) -> dict[str, object]:
    """Return a line with a name for every number."""
    found: dict[str, object] = {"table": table.id, "paper_row": line.paper_row, "row": line.name}
    found |= {"method": line.method, "seeds": len(line.seeds)}
    for name in ("acc", "bwt", "paper_acc", "paper_bwt"):
        measure: Measure | None = getattr(line, name)
        found[name] = measure and measure.value
        found[f"{name}_spread"] = measure and measure.spread
    found |= {"difference": line.difference, "verdict": line.verdict}
    return found | {"weights": line.weights, "stored_values": line.stored_values, "notes": "; ".join(line.notes)}


def _format_cells(lines: Sequence[ComparedRow]) -> tuple[list[list[str]], list[str]]:
    """Return the cells of each line as words, and the notes that their numbers refer to."""
    notes = list(dict.fromkeys(note for line in lines for note in line.notes))
    rows = []
    for line in lines:
        marks = "".join(f" ({notes.index(note) + 1})" for note in line.notes)
        signed = (line.acc, ""), (line.bwt, "+z"), (line.paper_acc, ""), (line.paper_bwt, "+z")
        figures = [_format_figure(measure, sign) for measure, sign in signed]
        difference = "-" if line.difference is None else f"{line.difference:+z.2f}"
        names = [line.paper_row or "-", line.name, str(len(line.seeds))]
        rows.append([*names, *figures, difference, f"{line.verdict}{marks}".strip()])
    return rows, notes


def _format_figure(measure: Measure | None, sign: str = "") -> str:
    if measure is None:
        return "-"
    return f"{measure.value:{sign}.{measure.digits}f}" + ("" if measure.spread is None else f" +- {measure.spread:.2f}")


def _list_below(notes: Sequence[str]) -> list[str]:
    return ["", *(f"({number}) {note}" for number, note in enumerate(notes, 1))] if notes else []


LATEX = tomllib.loads((files("ucb.experiments.reproduce") / "latex.toml").read_text())
"""How LaTeX writes what it would misread: ``in_maths`` has patterns, ``escaped`` single characters."""
SPECIAL = re.compile("|".join([*(f"({pattern})" for pattern in LATEX["in_maths"]), *map(re.escape, LATEX["escaped"])]))


def _escape_latex(cell: str) -> str:
    def write(found: re.Match[str]) -> str:
        if found.lastindex is None:
            return str(LATEX["escaped"][found[0]])
        return str([*LATEX["in_maths"].values()][found.lastindex - 1]).replace("{}", found[0])

    return "--" if cell == "-" else SPECIAL.sub(write, cell)
