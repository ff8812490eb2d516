"""A benchmark's figures as tables: medians, their ratios to other rows, and bars, which a figure may not exceed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ucb.experiments.bench.timing import Measured


@dataclass(frozen=True)
class SpeedBar:
    """A row's most milliseconds or, with ``of``, its most multiple of another row's."""

    row: str
    limit: float
    of: str | None = None
    said: str = ""
    """The limit in words, as short as a table's cell."""

    def judge(self, medians: Mapping[str, float]) -> dict[str, Any] | None:
        """Return how the row stands to its bar; None where it was not measured."""
        if self.row not in medians or (self.of is not None and self.of not in medians):
            return None
        value = medians[self.row] / (1.0 if self.of is None else medians[self.of])
        return judge_limit(self.row, value, self.limit, self.said, self.of)


def judge_limit(row: str, value: float, limit: float, said: str, of: str | None = None) -> dict[str, Any]:
    """Return a bar, the figure that stands to it, and whether it holds."""
    return {"row": row, "of": of, "limit": limit, "said": said, "value": value, "holds": value <= limit}


def describe_verdict(bar: Mapping[str, Any]) -> str:
    """Say a bar and whether it holds."""
    return f"{bar['said']}: {'held' if bar['holds'] else 'MISSED'}"


TimingTable = dict[str, Any]
"""``rows`` by name with the milliseconds of every repeat, their median and its ratio ``of`` others; ``bars``."""
RIVALS = ("blitz", "torchbnn")
"""Other libraries whose rows, where they were measured, the rows of a CPU's table are divided by."""
FLOOR = "1 pass of one deterministic net"
Cells = tuple[list[str], list[list[str]]]


def tabulate(
    measured: Measured, title: str, compared: Mapping[str, Mapping[str, str]], bars: Sequence[SpeedBar] = ()
) -> TimingTable:
    """Return the table of what was measured; ``compared`` says by column, for each row, which row it is divided by."""
    medians = {name: statistics.median(ms) for name, ms in measured.ms.items()}
    rows = {}
    for name, median in medians.items():
        others = {column: row_for.get(name) for column, row_for in compared.items()}
        of = {column: median / medians[other] if other in medians else None for column, other in others.items()}
        rows[name] = {"ms": measured.ms[name], "median": median, "of": of}
    found = [judgement for bar in bars if (judgement := bar.judge(medians)) is not None]
    return {"title": title, "rows": rows, "bars": found, "notes": measured.notes, "left_out": measured.left_out}


def cells(group: TimingTable, head: str, digits: int) -> Cells:
    """Return the table's head and rows in words."""
    columns = list(dict.fromkeys(column for row in group["rows"].values() for column in row["of"]))
    bars = {bar["row"]: describe_verdict(bar) for bar in group["bars"]}
    heads = [head, "ms", *(f"of {column}" for column in columns), *(["bar"] if bars else [])]
    rows = []
    for name, row in group["rows"].items():
        ratios = ["-" if row["of"][column] is None else f"{row['of'][column]:.2f}" for column in columns]
        rows.append([name, f"{row['median']:.{digits}f}", *ratios, *([bars.get(name, "")] if bars else [])])
    return heads, rows


def groups_of(result: Mapping[str, Any]) -> list[tuple[str, Cells]]:
    """Return title and cells of every table of a result, a CPU's or a GPU's."""
    if "nets" in result:
        return [(group["title"], cells(group, "step", 3)) for group in result["nets"].values()]
    ms = result["ms"]
    rows = {column: name for column in RIVALS for name in ms if name.startswith(column)} or {"1 pass": FLOOR}
    compared = {column: dict.fromkeys(ms, row) for column, row in rows.items()}
    return [(result.get("title", ""), cells(tabulate(Measured(ms), "", compared), "one step", 1))]


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return the lines below the tables: what it ran on, and what was special or is missing."""
    lines = [f"Kernels: {result['kernels']}. Machine: {result['machine']}."]
    if "memory" in result:
        lines.append(f"Peak memory of `weights`: {result['memory']:.2f} times mu and rho.")
    groups = (*result.get("nets", {}).values(), result)
    return lines + [f"{name}: {note}." for group in groups for name, note in group.get("notes", {}).items()]


def missing(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each contender that was left out."""
    groups = (*result.get("nets", {}).values(), result)
    return [f"left out: {name} ({why})" for group in groups for name, why in group.get("left_out", {}).items()]
