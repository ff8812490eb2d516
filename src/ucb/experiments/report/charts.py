"""The charts of one run. A chart is plain values: what plotly draws, what it means in words, and a table of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from typing import Any

from ucb.experiments.report.results import Result, describe_neighbours

Trace = dict[str, Any]
NAMES_FIT = 8
"""Task names up to this length stand at an axis; longer ones make way for their numbers."""
COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
BLUE, PALE, ORANGE, DARK = "#7fbcf0", "#f4f1ea", "#f2a56d", "#16181a"
CELLS = {"xgap": 1, "ygap": 1, "showscale": False, "textfont": {"color": DARK}}
"""What heat maps have in common: figures are dark in every cell, as all the colours are light."""
WITHIN = "98 % within %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra></extra>"
"""What hovers over a median: the range of the other weights."""
OLDER = "This result does not have it; runs of the present version do."
FEW = 6
"""So many bars have room for their figures, on a phone too."""
WIDE = 10
"""Ratios that differ by more than this factor stand on a logarithmic axis."""
LEAST_SPAN = 0.1
"""Colours of sigma span at least this factor, so that a movement of nothing looks like nothing."""


@dataclass(frozen=True)
class ChartTable:
    """Heads, and rows of words and numbers; None was not measured."""

    heads: list[str]
    rows: list[list[Any]]
    digits: int = 2


@dataclass(frozen=True)
class Chart:
    """Without traces there is nothing to draw, and ``note`` says why."""

    title: str
    note: str
    traces: list[Trace] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    table: ChartTable | None = None
    height: int = 300


def axis(title: str, labels: Sequence[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return an axis; with labels, they stand at 1, 2, ...: plotly would read names such as 1/2 as dates."""
    ticks = {} if labels is None else {"tickvals": places(labels), "ticktext": [plain(label) for label in labels]}
    return {"title": {"text": title}, **ticks, **more}


def places(labels: Sequence[object]) -> list[int]:
    """Return where on an axis the labels stand."""
    return list(range(1, len(labels) + 1))


def plain(name: str) -> str:
    """Return a name in which plotly sees no markup."""
    return escape(name, quote=False)


def short_names(tasks: Sequence[str]) -> list[str]:
    """Return the tasks' names for an axis, or their numbers where names are long."""
    if all(len(name) <= NAMES_FIT for name in tasks) and len(tasks) <= COLOURS:
        return list(tasks)
    return [str(number) for number in places(tasks)]


def line_style(index: int) -> dict[str, Any]:
    """Return how line number ``index`` looks: colours come round again, dashes and marks then differ."""
    turn = index // COLOURS
    return {"line": {"dash": DASHES[turn % len(DASHES)]}, "marker": {"symbol": SYMBOLS[turn % len(SYMBOLS)]}}


def line(name: str, x: Sequence[float], y: Sequence[float | None], **more: Any) -> Trace:
    """Return a line through points."""
    return {"type": "scatter", "mode": "lines+markers", "name": plain(name), "x": x, "y": y, **more}


def bars(y: Sequence[float], hover: str, **more: Any) -> Trace:
    """Return bars at 1, 2, ..."""
    return {"type": "bar", "x": places(y), "y": y, "hovertemplate": f"{hover}<extra></extra>", **more}


def heat_map(z: list[list[Any]], colours: Sequence[str], low: float, high: float) -> Trace:
    """Return cells with figures, a row of them for each of ``z``."""
    scale = [[0, colours[0]], [0.5, colours[1]], [1, colours[2]]]
    known = {"type": "heatmap", "x": places(z[0] if z else []), "y": places(z), "z": z, "colorscale": scale}
    return known | {"zmin": low, "zmax": high, **CELLS}


def charts_of(result: Result) -> list[Chart]:
    """Return all charts of a run."""
    kinds = (matrix, over_time, forgetting, sigma_at_end, sigma_by_task, calibration, seconds)
    return [draw(result) for draw in kinds]


def matrix(result: Result) -> Chart:
    """Return the accuracy matrix as a heat map."""
    tasks, rows = result["tasks"], result["accuracy_matrix"]
    names, n = short_names(tasks), len(tasks)
    known = [value for row in rows for value in row if value is not None]
    full = [[*row, *[None] * (n - len(row))] for row in rows]
    trace = heat_map(full, (ORANGE, PALE, BLUE), min([*known, 90.0]), 100)
    trace["customdata"] = [[[plain(after), plain(task)] for task in tasks] for after in tasks]
    trace["texttemplate"] = "%{z:.2f}" if n <= FEW else "%{z:.1f}"
    trace["hovertemplate"] = "%{customdata[1]} after %{customdata[0]}: %{z:.2f} %<extra></extra>"
    trace["hoverongaps"] = False
    layout = {
        "xaxis": axis("accuracy (%) on task", names, showgrid=False, range=[0.5, n + 0.5]),
        "yaxis": axis("after task", names, showgrid=False, range=[n + 0.5, 0.5]),
    }
    note = "Each row is a moment, each column a task: read a column downwards to see a task being remembered, or not."
    if result.get("after_task_end"):
        ended = ", ".join("-" if value is None else f"{value:.2f}" for value in result["after_task_end"])
        note += f" The diagonal is from before the method ended each task; right after, it was {ended}."
    table = ChartTable(["after", *tasks], [[name, *row] for name, row in zip(tasks, full, strict=True)])
    return Chart("Accuracy after each task", note, [trace], layout, table, 110 + 44 * min(n, 8) + 24 * max(0, n - 8))


def over_time(result: Result) -> Chart:
    """Return how the accuracy of each task goes on while others are learnt."""
    tasks, rows = result["tasks"], result["accuracy_matrix"]
    hover = "%{y:.2f} %"
    traces = [
        line(name, places(tasks)[i:], [row[i] for row in rows[i:]], hovertemplate=hover, **line_style(i))
        for i, name in enumerate(tasks)
    ]
    means = [None if None in row else math.fsum(row) / len(row) for row in rows]
    dotted = {"color": "@text", "dash": "dot", "width": 3}
    traces.append(line("mean so far", places(tasks), means, mode="lines", line=dotted, hovertemplate=hover))
    x_axis = axis("after task", short_names(tasks), range=[0.8, len(tasks) + 0.2])
    layout = {"xaxis": x_axis, "yaxis": axis("accuracy (%)")}
    table = ChartTable(["after", "mean of tasks so far"], [list(pair) for pair in zip(tasks, means, strict=True)])
    return Chart("Accuracy of each task over time", "A flat line is a task that is kept.", traces, layout, table, 340)


def forgetting(result: Result) -> Chart:
    """Return how far each task fell from its best accuracy to its last."""
    title, tasks, matrix = "Forgetting", result["tasks"], result["accuracy_matrix"]
    best = [[row[i] for row in matrix[i:-1] if row[i] is not None] for i in range(len(tasks))]
    lost = [
        [name, max(b), last] for name, b, last in zip(tasks, best, matrix[-1], strict=True) if b and last is not None
    ]
    if not lost:
        return Chart(title, "Nothing could be forgotten: no task was judged before the last one.")
    drops = [before - last for _, before, last in lost]
    trace = bars(drops, "%{y:.2f} points")
    if len(drops) <= FEW:
        trace |= {"text": [f"{drop:.2f}" for drop in drops], "textposition": "outside", "cliponaxis": False}
    span = max([*map(abs, drops), 0.5])
    low = -1.2 * span if min(drops) < 0 else 0
    y_axis = axis("points lost", range=[low, 1.2 * span])
    layout = {"xaxis": axis("task", short_names(tasks)[: len(lost)]), "yaxis": y_axis}
    note = (
        "Best accuracy a task had before the last one was learnt, less its accuracy at the end. Below zero it gained."
    )
    rows = [[*row, drop] for row, drop in zip(lost, drops, strict=True)]
    table = ChartTable(["task", "best", "at the end", "lost"], rows)
    return Chart(title, note, [trace], layout, table)


def sigma_at_end(result: Result) -> Chart:
    """Return how far sigma moved in each layer from the start to the end."""
    title, moved = "How far sigma moved, by layer", result.get("sigma")
    if not moved:
        return Chart(title, "This method has no sigma.")
    names = list(moved)
    low, middle, high = ([moved[name][f"ratio_p{p}"] for name in names] for p in (1, 50, 99))
    above = [b - a for a, b in zip(middle, high, strict=True)]
    below = [b - a for a, b in zip(low, middle, strict=True)]
    trace: Trace = {"type": "scatter", "mode": "markers", "x": middle, "y": places(names)}
    trace["error_x"] = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    trace["customdata"] = [list(each) for each in zip(low, high, strict=True)]
    trace["hovertemplate"] = f"median %{{x:.4g}}, {WITHIN}"
    trace["marker"] = {"size": 9}
    dotted = {"color": "@text", "dash": "dot"}
    start = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper", "line": dotted}
    scale = {"type": "log", "dtick": 1} if max(high) > WIDE * min(low) else {"nticks": 5}
    layout = {
        "xaxis": axis("sigma, end / start", **scale),
        "yaxis": axis("", names, range=[len(names) + 0.6, 0.4]),
        "shapes": [start],
    }
    note = "Dot: the median weight; bar: 1st to 99th percentile. At 1 (dotted) the uncertainty is what it was at first."
    heads = ["weights", "1st percentile", "median", "99th percentile", "spread of log sigma"]
    spread = [moved[name].get("std_log_sigma") for name in names]
    rows = [list(row) for row in zip(names, low, middle, high, spread, strict=True)]
    return Chart(title, note, [trace], layout, ChartTable(heads, rows, 4), 90 + 24 * len(names))


def sigma_by_task(result: Result) -> Chart:
    """Return how sigma moved in each layer with each task: the paper's Figure 1, measured."""
    title, moved, tasks = "How sigma moved, by layer and task", result.get("sigma_by_task"), result["tasks"]
    if not moved:
        return Chart(title, OLDER if result.get("sigma") else "This method has no sigma.")
    moved = list(accumulate(moved, lambda before, after: {**before, **after}))  # what is not named did not learn
    names = list(moved[0])
    ratios = [[after[name]["ratio_p50"] for after in moved] for name in names]
    spans = [[[after[name]["ratio_p1"], after[name]["ratio_p99"]] for after in moved] for name in names]
    logs = [[math.log2(ratio) for ratio in row] for row in ratios]
    span = max([LEAST_SPAN, *(abs(value) for row in logs for value in row)])
    trace = heat_map(logs, (BLUE, PALE, ORANGE), -span, span)
    trace |= {"text": ratios, "customdata": spans, "texttemplate": "%{text:.3f}"}
    trace["hovertemplate"] = f"median %{{text:.4g}}, {WITHIN}"
    layout = {
        "xaxis": axis("after task", short_names(tasks)[: len(moved)], showgrid=False),
        "yaxis": axis("", names, showgrid=False, range=[len(names) + 0.5, 0.5]),
    }
    note = "Median of sigma relative to its start, after each task. Blue: surer than at the start; orange: less sure."
    rows = [[name, *row] for name, row in zip(names, ratios, strict=True)]
    table = ChartTable(["weights", *tasks[: len(moved)]], rows, 4)
    return Chart(title, note, [trace], layout, table, 90 + 26 * len(names))


def calibration(result: Result) -> Chart:
    """Return the reliability diagram: of what was said with some confidence, how much is right."""
    title, curves = "Calibration at the end", result.get("calibration")
    if not curves or not any(curve["count"] for curve in curves):
        return Chart(title, OLDER)
    traces, rows = [], []
    nll = result.get("nll") or [None] * len(curves)
    hover = "said %{x:.3f}, right %{y:.3f} (%{customdata} examples)"
    for i, (task, curve) in enumerate(zip(result["tasks"], curves, strict=True)):
        style, total = line_style(i), sum(curve["count"])
        style["marker"] |= {"size": [5 + 15 * math.sqrt(n / total) for n in curve["count"]], "opacity": 0.8}
        style["line"] |= {"width": 1}
        points = {"customdata": curve["count"], "hovertemplate": hover}
        traces.append(line(task, curve["confidence"], curve["accuracy"], **points, **style))
        error = math.fsum(
            n * abs(right - said)
            for n, said, right in zip(curve["count"], curve["confidence"], curve["accuracy"], strict=True)
        )
        rows.append([task, error / total if total else None, nll[i]])
    dotted = {"color": "@text", "dash": "dot", "width": 1}
    traces.append(line("ideal", [0, 1], [0, 1], mode="lines", hoverinfo="skip", line=dotted))
    layout = {"xaxis": axis("confidence", range=[0, 1.03]), "yaxis": axis("share that is right", range=[0, 1.05])}
    note = "Below the dotted line the learner is too sure. Large dots hold many examples; small ones are mostly chance."
    return Chart(title, note, traces, layout, ChartTable(["task", "ECE", "NLL (nats)"], rows, 4), 360)


def seconds(result: Result) -> Chart:
    """Return how long each task took."""
    title, spent, tasks = "Seconds for each task", result.get("task_seconds"), result["tasks"]
    if not spent:
        return Chart(title, OLDER)
    trace = bars(spent, "%{y:.1f} s")
    layout = {"xaxis": axis("task", short_names(tasks)), "yaxis": axis("seconds", rangemode="tozero")}
    epochs = result.get("epochs") or [None] * len(tasks)
    rows = [list(row) for row in zip(tasks, spent, epochs, strict=True)]
    where = f"on {result.get('device') or 'a device that is not named'}"
    words = ["Training and judging", where, describe_neighbours(result)]
    note = f"{', '.join(filter(None, words))}."
    return Chart(title, note, [trace], layout, ChartTable(["task", "seconds", "epochs"], rows, 1))
