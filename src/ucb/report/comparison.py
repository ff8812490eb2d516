"""Several runs beside each other: what differs in nothing but the seed is one row, with its spread."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from ucb.report import costs
from ucb.report.chart import Chart, Table, axis, places, plain
from ucb.report.groups import Group, groups_of

Result = dict[str, Any]
MEGA = 1e6
HOVER_FITS = 40
"""So many letters in a line that hovers over a chart fit a phone."""


def sections_of(results: Sequence[Result]) -> list[tuple[str, list[Chart]]]:
    """Return, for each stream of tasks that two runs or more have in common, a heading and charts."""
    streams: dict[str, list[Result]] = {}
    for result in results:
        streams.setdefault(stream_name(result), []).append(result)
    return [(name, charts_of(groups_of(runs))) for name, runs in streams.items() if len(runs) > 1]


def charts_of(groups: Sequence[Group]) -> list[Chart]:
    """Return the charts that compare groups of runs."""
    runs = [run for group in groups for run in group.runs]
    on_time, on_memory = costs.about_times(runs), costs.about_memory(runs)
    return [
        compared(groups, "acc", "ACC", "%; mean accuracy over all tasks at the end"),
        compared(groups, "bwt", "BWT", "points; mean change since each task was learnt, below zero is forgetting"),
        compared(groups, "seconds", "Time", "seconds; training and judging", digits=0, bars=True, more=on_time),
        compared(groups, costs.MEMORY, "Memory", "MB; the most that was held", 1 / MEGA, 0, bars=True, more=on_memory),
        compared(groups, "weights", "Weights", "millions; a Gaussian weight counts once", 1 / MEGA, bars=True),
        compared(groups, "stored_values", "Stored values", "millions; numbers kept between tasks", 1 / MEGA, bars=True),
    ]


def compared(
    groups: Sequence[Group],
    name: str,
    title: str,
    unit: str,
    factor: float = 1.0,
    digits: int = 2,
    bars: bool = False,
    more: str = "",
) -> Chart:
    """Return a figure of all groups: means, with standard deviations over seeds. ``more`` ends the note."""
    measured = [(group, [factor * value for value in group.values(name)]) for group in groups]
    rows = [(group, values) for group, values in measured if values]
    if not rows:
        return Chart(title, f"None of these runs has it.{more}")
    short, _, meaning = unit.partition("; ")
    labels = [group.label for group, _ in rows]
    means = [mean(values) for _, values in rows]
    spreads = [stdev(values) if len(values) > 1 else None for _, values in rows]
    trace: dict[str, Any] = {"x": means, "y": places(labels), "name": "mean"}
    dots = {"type": "scatter", "mode": "markers", "marker": {"size": 10}}
    trace |= {"type": "bar", "orientation": "h"} if bars else dots
    if any(spread is not None for spread in spreads):
        trace["error_x"] = {"type": "data", "array": spreads, "color": "@text"}
    words = [said(middle, spread, digits) for middle, spread in zip(means, spreads, strict=True)]
    trace["customdata"] = [[_lines(group.full), word] for (group, _), word in zip(rows, words, strict=True)]
    trace["hovertemplate"] = "%{customdata[0]}: %{customdata[1]}<extra></extra>"
    several = [(place, values) for place, (_, values) in enumerate(rows, 1) if len(values) > 1]
    single = [(value, place) for place, values in several for value in values]
    each = {
        "type": "scatter",
        "mode": "markers",
        "name": "one seed",
        "x": [value for value, _ in single],
        "y": [place for _, place in single],
        "marker": {"symbol": "circle-open", "size": 7, "color": "@text"},
        "hovertemplate": f"one seed: %{{x:.{digits}f}}<extra></extra>",
    }
    layout = {
        "xaxis": axis(short, nticks=6, **({"rangemode": "tozero"} if bars else {})),
        "yaxis": axis("", labels, range=[len(labels) + 0.6, 0.4]),
        "showlegend": False,
    }
    heads = ["method", "mean", "standard deviation", "seeds"]
    seeds = [", ".join(str(run["seed"]) for run in group.runs if run.get(name) is not None) for group, _ in rows]
    full = [group.full for group, _ in rows]
    table = Table(heads, [list(row) for row in zip(full, means, spreads, seeds, strict=True)], digits)
    note = f"{meaning[0].upper()}{meaning[1:]}."
    if single:
        note += f" Whiskers are one standard deviation over seeds{'' if bars else ', circles single seeds'}."
    note += more
    return Chart(title, note, [trace, each] if single and not bars else [trace], layout, table, 80 + 24 * len(labels))


def said(middle: float, spread: float | None, digits: int) -> str:
    """Return a mean and its spread in words."""
    return f"{middle:.{digits}f}" if spread is None else f"{middle:.{digits}f} ± {spread:.{digits}f}"


def _lines(label: str) -> str:
    """Return a label in lines that fit a phone."""
    return "<br>".join(map(plain, textwrap.wrap(label, HOVER_FITS, break_on_hyphens=False)))


def stream_name(result: Result) -> str:
    """Return what is learnt in a run: the benchmark, and what was changed about it."""
    config, words = result["config"], [result["benchmark"]]
    words += [f"{len(result['tasks'])} tasks"]
    said = {"single_head": "single head", "apart": "outputs apart", "task_told": "task told"}
    words += [word for name, word in said.items() if config.get(name)]
    words += [f"{name} {config[name]}" for name in ("blur", "faces") if config.get(name) is not None]
    return ", ".join([*words, *(config.get("data") or [])])
