"""Several runs beside each other: those that differ in nothing but the seed are one group, a row with its spread."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from ucb.experiments.report.charts import Chart, ChartTable, axis, line, places, plain
from ucb.experiments.report.results import MEMORY, Result, describe_memory, describe_times

STREAM = ("benchmark", "tasks", "single_head", "apart", "task_told", "blur", "faces", "data")
"""What decides which tasks are learnt, of a run's configuration."""
NO_SETTING = ("seed", "device", *STREAM)
LEFT_OPEN = ""
"""Stands for the value of a setting that a run does not name; no other does, as values are written as JSON."""
MEGA = 1e6
HOVER_FITS = 40
"""So many letters in a line that hovers over a chart fit a phone."""


@dataclass(frozen=True)
class RunGroup:
    """The runs of one configuration, and what to call them."""

    label: str
    """The method, and what tells it from the other groups of this method."""
    runs: list[Result]
    full: str = ""
    """The label with every setting that differs, also where most groups have the same."""

    def values(self, name: str) -> list[float]:
        """Return a figure of all runs that have it."""
        return [run[name] for run in self.runs if run.get(name) is not None]


def groups_of(results: Sequence[Result]) -> list[RunGroup]:
    """Put together what differs in the seed, and the device, only; where a method has several groups, labels say which.

    The best stands first, in every chart: so a method is found at one height.
    """
    by_settings: dict[str, list[Result]] = {}
    for result in results:
        by_settings.setdefault(json.dumps(_flatten(result), sort_keys=True), []).append(result)
    groups = list(by_settings.values())
    named = [_name_group(runs, [other[0] for other in groups]) for runs in groups]
    return sorted(named, key=lambda group: -mean(group.values("acc") or [0.0]))


def _name_group(runs: list[Result], one_of_each: Sequence[Result]) -> RunGroup:
    method, own = str(runs[0]["method"]), _flatten(runs[0])
    others = [_flatten(other) for other in one_of_each if other["method"] == method]
    named, all_named = [], []
    for name in sorted({name for other in others for name in other}):
        words = [json.dumps(other[name]) if name in other else LEFT_OPEN for other in others]
        if len(set(words)) > 1 and name in own:
            all_named.append(_describe_setting(name, own[name]))
            if json.dumps(own[name]) != _find_usual(words):
                named.append(all_named[-1])
    label, full = (f"{method} ({', '.join(said)})" if said else method for said in (named, all_named))
    return RunGroup(label, runs, full)


def _find_usual(words: Sequence[str]) -> str:
    """Return the value of a setting that goes without saying; it is one only, so that no two groups look alike."""
    word, times = Counter(words).most_common(1)[0]
    return LEFT_OPEN if LEFT_OPEN in words or 2 * times <= len(words) or len(words) < 3 else word


def _describe_setting(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    values = value if isinstance(value, list) else [value]
    short = (int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 1e6 else v for v in values)
    return f"{name}={', '.join(map(str, short))}"


def _flatten(result: Result) -> dict[str, Any]:
    """Return the method's configuration as one list of names and values, without the seed."""
    flat: dict[str, Any] = {"method": result["method"]}
    for name, value in result["config"].items():
        if isinstance(value, dict):
            flat |= value
        elif name not in NO_SETTING and value is not None:
            flat[name] = value
    return flat


def sections_of(results: Sequence[Result]) -> list[tuple[str, list[Chart]]]:
    """Return, for each stream of tasks that two runs or more have in common, a heading and charts."""
    streams: dict[str, list[Result]] = {}
    for result in results:
        streams.setdefault(stream_name(result), []).append(result)
    return [(name, charts_of(groups_of(runs))) for name, runs in streams.items() if len(runs) > 1]


def charts_of(groups: Sequence[RunGroup]) -> list[Chart]:
    """Return the charts that compare groups of runs."""
    runs = [run for group in groups for run in group.runs]
    on_time, on_memory = describe_times(runs), describe_memory(runs)
    return [
        compare(groups, "acc", "ACC", "%; mean accuracy over all tasks at the end"),
        compare(groups, "bwt", "BWT", "points; mean change since each task was learnt, below zero is forgetting"),
        compare(groups, "seconds", "Time", "seconds; training and judging", digits=0, bars=True, more=on_time),
        compare(groups, MEMORY, "Memory", "MB; the most that was held", 1 / MEGA, 0, bars=True, more=on_memory),
        compare(groups, "weights", "Weights", "millions; a Gaussian weight counts once", 1 / MEGA, bars=True),
        compare(groups, "stored_values", "Stored values", "millions; numbers kept between tasks", 1 / MEGA, bars=True),
    ]


def compare(
    groups: Sequence[RunGroup],
    name: str,
    title: str,
    unit: str,
    factor: float = 1.0,
    digits: int = 2,
    bars: bool = False,
    more: str = "",
) -> Chart:
    """Return a figure of all groups: means, with standard deviations over seeds. ``more`` ends the note."""
    rows = [(group, values) for group in groups if (values := [factor * value for value in group.values(name)])]
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
    full = [group.full for group, _ in rows]
    whiskers = ["" if spread is None else f" ± {spread:.{digits}f}" for spread in spreads]
    words = [f"{middle:.{digits}f}{whisker}" for middle, whisker in zip(means, whiskers, strict=True)]
    wrapped = ["<br>".join(map(plain, textwrap.wrap(label, HOVER_FITS, break_on_hyphens=False))) for label in full]
    trace["customdata"] = [list(pair) for pair in zip(wrapped, words, strict=True)]
    trace["hovertemplate"] = "%{customdata[0]}: %{customdata[1]}<extra></extra>"
    single = [(value, place) for place, (_, values) in enumerate(rows, 1) if len(values) > 1 for value in values]
    x, y = [value for value, _ in single], [place for _, place in single]
    circle = {"symbol": "circle-open", "size": 7, "color": "@text"}
    hover = f"one seed: %{{x:.{digits}f}}<extra></extra>"
    each = line("one seed", x, y, mode="markers", marker=circle, hovertemplate=hover)
    layout = {
        "xaxis": axis(short, nticks=6, **({"rangemode": "tozero"} if bars else {})),
        "yaxis": axis("", labels, range=[len(labels) + 0.6, 0.4]),
        "showlegend": False,
    }
    heads = ["method", "mean", "standard deviation", "seeds"]
    seeds = [", ".join(str(run["seed"]) for run in group.runs if run.get(name) is not None) for group, _ in rows]
    table = ChartTable(heads, [list(row) for row in zip(full, means, spreads, seeds, strict=True)], digits)
    note = f"{meaning[0].upper()}{meaning[1:]}."
    if single:
        note += f" Whiskers are one standard deviation over seeds{'' if bars else ', circles single seeds'}."
    note += more
    return Chart(title, note, [trace, each] if single and not bars else [trace], layout, table, 80 + 24 * len(labels))


def stream_name(result: Result) -> str:
    """Return what is learnt in a run: the benchmark, and what was changed about it."""
    config, words = result["config"], [result["benchmark"], f"{len(result['tasks'])} tasks"]
    said = {"single_head": "single head", "apart": "outputs apart", "task_told": "task told"}
    words += [word for name, word in said.items() if config.get(name)]
    words += [f"{name} {config[name]}" for name in ("blur", "faces") if config.get(name) is not None]
    return ", ".join([*words, *(config.get("data") or [])])
