"""The charts of one run."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from ucb.report.chart import BLUE, CELLS, ORANGE, PALE, Chart, Table, axis, places, plain, short_names, telling_apart
from ucb.report.costs import neighbours

Result = dict[str, Any]
OLDER = "This result does not have it; runs of the present version do."
FEW = 6
"""So many bars have room for their figures, on a phone too."""
WIDE = 10
"""Ratios that differ by more than this factor stand on a logarithmic axis."""
LEAST_SPAN = 0.1
"""Colours of sigma span at least this factor, so that a movement of nothing looks like nothing."""


def charts_of(result: Result) -> list[Chart]:
    """Return all charts of a run."""
    charts = [matrix(result), over_time(result), forgetting(result), sigma_at_end(result), sigma_by_task(result)]
    return [*charts, calibration(result), seconds(result)]


def matrix(result: Result) -> Chart:
    """Return the accuracy matrix as a heat map."""
    tasks, rows = result["tasks"], result["accuracy_matrix"]
    names, n = short_names(tasks), len(tasks)
    known = [value for row in rows for value in row if value is not None]
    full = [[*row, *[None] * (n - len(row))] for row in rows]
    trace = {
        "type": "heatmap",
        "x": places(tasks),
        "y": places(tasks),
        "z": full,
        "customdata": [[[plain(after), plain(task)] for task in tasks] for after in tasks],
        "texttemplate": "%{z:.2f}" if n <= FEW else "%{z:.1f}",
        "hovertemplate": "%{customdata[1]} after %{customdata[0]}: %{z:.2f} %<extra></extra>",
        "colorscale": [[0, ORANGE], [0.5, PALE], [1, BLUE]],
        "zmin": min([*known, 90.0]),
        "zmax": 100,
        "hoverongaps": False,
        **CELLS,
    }
    layout = {
        "xaxis": axis("accuracy (%) on task", names, showgrid=False, range=[0.5, n + 0.5]),
        "yaxis": axis("after task", names, showgrid=False, range=[n + 0.5, 0.5]),
    }
    note = "Each row is a moment, each column a task: read a column downwards to see a task being remembered, or not."
    if result.get("after_task_end"):
        ended = ", ".join("-" if value is None else f"{value:.2f}" for value in result["after_task_end"])
        note += f" The diagonal is from before the method ended each task; right after, it was {ended}."
    table = Table(["after", *tasks], [[name, *row] for name, row in zip(tasks, full, strict=True)])
    return Chart("Accuracy after each task", note, [trace], layout, table, 110 + 44 * min(n, 8) + 24 * max(0, n - 8))


def over_time(result: Result) -> Chart:
    """Return how the accuracy of each task goes on while others are learnt."""
    tasks, rows = result["tasks"], result["accuracy_matrix"]
    traces: list[dict[str, Any]] = []
    for i, name in enumerate(tasks):
        trace = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plain(name),
            "x": places(tasks)[i:],
            "y": [row[i] for row in rows[i:]],
            "hovertemplate": "%{y:.2f} %",
        }
        traces.append(trace | telling_apart(i))
    means = [None if None in row else math.fsum(row) / len(row) for row in rows]
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "mean so far",
            "x": places(tasks),
            "y": means,
            "line": {"color": "@text", "dash": "dot", "width": 3},
            "hovertemplate": "%{y:.2f} %",
        }
    )
    layout = {
        "xaxis": axis("after task", short_names(tasks), range=[0.8, len(tasks) + 0.2]),
        "yaxis": axis("accuracy (%)"),
    }
    table = Table(["after", "mean of tasks so far"], [list(pair) for pair in zip(tasks, means, strict=True)])
    return Chart("Accuracy of each task over time", "A flat line is a task that is kept.", traces, layout, table, 340)


def forgetting(result: Result) -> Chart:
    """Return how far each task fell from its best accuracy to its last."""
    title, tasks, rows = "Forgetting", result["tasks"], result["accuracy_matrix"]
    best = [[row[i] for row in rows[i:-1] if row[i] is not None] for i in range(len(tasks))]
    lost = [[name, max(b), last] for name, b, last in zip(tasks, best, rows[-1], strict=True) if b and last is not None]
    if not lost:
        return Chart(title, "Nothing could be forgotten: no task was judged before the last one.")
    drops = [before - last for _, before, last in lost]
    names = [name for name, _, _ in lost]
    trace: dict[str, Any] = {
        "type": "bar",
        "x": places(names),
        "y": drops,
        "hovertemplate": "%{y:.2f} points<extra></extra>",
    }
    if len(drops) <= FEW:
        trace |= {"text": [f"{drop:.2f}" for drop in drops], "textposition": "outside", "cliponaxis": False}
    span = max([*map(abs, drops), 0.5])
    low = -1.2 * span if min(drops) < 0 else 0
    layout = {
        "xaxis": axis("task", short_names(tasks)[: len(names)]),
        "yaxis": axis("points lost", range=[low, 1.2 * span]),
    }
    note = (
        "Best accuracy a task had before the last one was learnt, less its accuracy at the end. Below zero it gained."
    )
    table = Table(["task", "best", "at the end", "lost"], [[*row, drop] for row, drop in zip(lost, drops, strict=True)])
    return Chart(title, note, [trace], layout, table)


def sigma_at_end(result: Result) -> Chart:
    """Return how far sigma moved in each layer from the start to the end."""
    title, moved = "How far sigma moved, by layer", result.get("sigma")
    if not moved:
        return Chart(title, "This method has no sigma.")
    names = list(moved)
    low, middle, high = ([moved[name][f"ratio_p{p}"] for name in names] for p in (1, 50, 99))
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": middle,
        "y": places(names),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [b - a for a, b in zip(middle, high, strict=True)],
            "arrayminus": [b - a for a, b in zip(low, middle, strict=True)],
        },
        "customdata": [list(each) for each in zip(low, high, strict=True)],
        "hovertemplate": "median %{x:.4g}, 98 % within %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra></extra>",
        "marker": {"size": 9},
    }
    start: dict[str, Any] = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper"}
    start["line"] = {"color": "@text", "dash": "dot"}
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
    return Chart(title, note, [trace], layout, Table(heads, rows, 4), 90 + 24 * len(names))


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
    trace = {
        "type": "heatmap",
        "x": places(moved),
        "y": places(names),
        "z": logs,
        "text": ratios,
        "customdata": spans,
        "texttemplate": "%{text:.3f}",
        "hovertemplate": "median %{text:.4g}, 98 % within %{customdata[0]:.4g} to %{customdata[1]:.4g}<extra></extra>",
        "colorscale": [[0, BLUE], [0.5, PALE], [1, ORANGE]],
        "zmin": -span,
        "zmax": span,
        **CELLS,
    }
    layout = {
        "xaxis": axis("after task", short_names(tasks)[: len(moved)], showgrid=False),
        "yaxis": axis("", names, showgrid=False, range=[len(names) + 0.5, 0.5]),
    }
    note = "Median of sigma relative to its start, after each task. Blue: surer than at the start; orange: less sure."
    rows = [[name, *row] for name, row in zip(names, ratios, strict=True)]
    table = Table(["weights", *tasks[: len(moved)]], rows, 4)
    return Chart(title, note, [trace], layout, table, 90 + 26 * len(names))


def calibration(result: Result) -> Chart:
    """Return the reliability diagram: of what was said with some confidence, how much is right."""
    title, curves = "Calibration at the end", result.get("calibration")
    if not curves or not any(curve["count"] for curve in curves):
        return Chart(title, OLDER)
    traces: list[dict[str, Any]] = []
    rows = []
    for i, (task, curve) in enumerate(zip(result["tasks"], curves, strict=True)):
        looks, total = telling_apart(i), sum(curve["count"])
        looks["marker"] |= {"size": [5 + 15 * math.sqrt(n / total) for n in curve["count"]], "opacity": 0.8}
        looks["line"] |= {"width": 1}
        trace = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plain(task),
            "x": curve["confidence"],
            "y": curve["accuracy"],
            "customdata": curve["count"],
            "hovertemplate": "said %{x:.3f}, right %{y:.3f} (%{customdata} examples)",
        }
        traces.append(trace | looks)
        error = math.fsum(
            n * abs(right - said)
            for n, said, right in zip(curve["count"], curve["confidence"], curve["accuracy"], strict=True)
        )
        rows.append([task, error / total if total else None, _at(result.get("nll"), i)])
    diagonal = {"type": "scatter", "mode": "lines", "name": "ideal", "x": [0, 1], "y": [0, 1], "hoverinfo": "skip"}
    traces.append(diagonal | {"line": {"color": "@text", "dash": "dot", "width": 1}})
    layout = {
        "xaxis": axis("confidence", range=[0, 1.03]),
        "yaxis": axis("share that is right", range=[0, 1.05]),
    }
    note = "Below the dotted line the learner is too sure. Large dots hold many examples; small ones are mostly chance."
    return Chart(title, note, traces, layout, Table(["task", "ECE", "NLL (nats)"], rows, 4), 360)


def seconds(result: Result) -> Chart:
    """Return how long each task took."""
    title, spent, tasks = "Seconds for each task", result.get("task_seconds"), result["tasks"]
    if not spent:
        return Chart(title, OLDER)
    trace: dict[str, Any] = {
        "type": "bar",
        "x": places(tasks),
        "y": spent,
        "hovertemplate": "%{y:.1f} s<extra></extra>",
    }
    layout = {"xaxis": axis("task", short_names(tasks)), "yaxis": axis("seconds", rangemode="tozero")}
    epochs = result.get("epochs") or [None] * len(tasks)
    rows = [list(row) for row in zip(tasks, spent, epochs, strict=True)]
    words = ["Training and judging", f"on {result.get('device') or 'a device that is not named'}", neighbours(result)]
    note = f"{', '.join(filter(None, words))}."
    return Chart(title, note, [trace], layout, Table(["task", "seconds", "epochs"], rows, 1))


def _at(values: list[float | None] | None, index: int) -> float | None:
    return None if values is None else values[index]
