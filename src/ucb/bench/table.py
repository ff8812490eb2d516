"""A benchmark's figures as tables: medians, their ratios to floors or peers, and bars.

A group is one table: ``rows`` by name with the milliseconds of every repeat, their median and its ratio ``of`` others.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ucb.bench.bars import Bar, verdict
from ucb.bench.timing import Measured

Group = dict[str, Any]
Cells = tuple[list[str], list[list[str]]]


def group_of(
    measured: Measured, title: str, compared: Mapping[str, Mapping[str, str]], bars: Sequence[Bar] = ()
) -> Group:
    """Return the table of what was measured; ``compared`` says by column, for each row, which row it is divided by."""
    medians = {name: statistics.median(ms) for name, ms in measured.ms.items()}
    rows = {}
    for name, median in medians.items():
        others = {column: row_for.get(name) for column, row_for in compared.items()}
        of = {column: median / medians[other] if other in medians else None for column, other in others.items()}
        rows[name] = {"ms": measured.ms[name], "median": median, "of": of}
    found = [judgement for bar in bars if (judgement := bar.judge(medians)) is not None]
    return {"title": title, "rows": rows, "bars": found, "notes": measured.notes, "left_out": measured.left_out}


def cells(group: Group, head: str, digits: int) -> Cells:
    """Return the table's head and rows in words."""
    columns = list(dict.fromkeys(column for row in group["rows"].values() for column in row["of"]))
    bars = {bar["row"]: verdict(bar) for bar in group["bars"]}
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
    columns = {"blitz": "blitz", "torchbnn": "torchbnn"}
    rows = {column: next((name for name in ms if name.startswith(package)), "") for column, package in columns.items()}
    compared = {column: dict.fromkeys(ms, row) for column, row in rows.items()}
    return [(result.get("title", ""), cells(group_of(Measured(ms), "", compared), "one step", 1))]


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return the lines below the tables: what it ran on, and what was special or is missing."""
    lines = [f"Kernels: {result['kernels']}. Machine: {result['machine']}."]
    if "memory" in result:
        lines.append(f"Peak memory of `weights`: {result['memory']:.2f} times mu and rho.")
    for group in (*result.get("nets", {}).values(), result):
        lines += [f"{name}: {note}." for name, note in group.get("notes", {}).items()]
    return lines


def missing(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each contender that was left out."""
    groups = (*result.get("nets", {}).values(), result)
    return [f"left out: {name} ({why})" for group in groups for name, why in group.get("left_out", {}).items()]


def markdown(result: Mapping[str, Any]) -> str:
    """Return all that a run of the benchmark says, for a document."""
    parts = []
    for title, (heads, rows) in groups_of(result):
        lines = [heads, ["---"] * len(heads), *rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"{title}:\n\n{table}" if "nets" in result else table)
    return "\n\n".join([*parts, "\n".join(remarks(result))])
