"""The page about runs: everything in one file, plotly's JavaScript and the commands that repeat the runs too."""

from __future__ import annotations

import importlib.util
import json
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ucb.experiments.report.charts import Chart, ChartTable, charts_of
from ucb.experiments.report.comparison import sections_of
from ucb.experiments.report.results import FoundResult, cost_rows, leave_out_shared_memory
from ucb.storage import write_atomically

OPTIONS = ("seed", "tasks", "blur", "faces", "net", "device")
FLAGS = ("single_head", "apart", "task_told")
HOW_TO_INSTALL = "pip install 'ucb[report]'"
FIGURES = {
    "acc": "ACC (%)",
    "bwt": "BWT",
    "forgetting": "forgetting",
    "forward_transfer": "forward transfer",
    "learning_acc": "ACC when learnt (%)",
}
NEXT_LINE = " \\\n    "
COSTS = {"weights": "weights", "stored_values": "values kept between tasks"}


def can_draw() -> bool:
    """Whether plotly is installed."""
    return importlib.util.find_spec("plotly") is not None


def write_page(found: Sequence[FoundResult], path: Path) -> None:
    """Write the page about these results, over none of their files."""
    if path.exists() and any(path.samefile(file) for each in found for file in (each.path, *each.copies)):
        raise ValueError(f"{path} is one of the results: name another file")
    page = page_of(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page.encode())


def page_of(found: Sequence[FoundResult]) -> str:
    """Return the page about these results."""
    if not can_draw():
        raise RuntimeError(f"a report needs plotly, which is not installed: {HOW_TO_INSTALL}")
    drawn: list[dict[str, Any]] = []
    views = _views(found, drawn)
    parts = {
        name: files("ucb.experiments.report").joinpath(f"page.{name}").read_text("utf-8")
        for name in ("html", "css", "js")
    }
    return Template(parts["html"]).substitute(
        title=escape(_name(found[0].result) if len(found) == 1 else f"{len(found)} runs"),
        style=parts["css"],
        menu="".join(f'<option value="{id_}">{escape(name)}</option>' for id_, name, _ in views),
        single="hidden" if len(views) == 1 else "",
        views="".join(f'<section class="view" id="{id_}">{body}</section>' for id_, _, body in views),
        charts=json.dumps(drawn, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        plotly=import_module("plotly.offline").get_plotlyjs(),
        script=parts["js"],
    )


def _name(result: dict[str, Any]) -> str:
    return f"{result['benchmark']}, {result['method']}, seed {result['seed']}"


def _views(found: Sequence[FoundResult], drawn: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return id, name and HTML of all that the menu offers; each chart goes to ``drawn`` and is named by its place."""
    views = []
    results = leave_out_shared_memory([each.result for each in found])
    if len(results) > 1 and (sections := sections_of(results)):
        grids = ((escape(name), _cards(charts, drawn)) for name, charts in sections)
        body = "".join(f'<h2>{name}</h2><div class="grid">{cards}</div>' for name, cards in grids)
        views.append(("comparison", "Comparison of all runs", body))
    names = [_name(result) for result in results]
    for number, (each, result, name) in enumerate(zip(found, results, names, strict=True)):
        name = name if names.count(name) == 1 else f"{name} ({each.path})"
        views.append((f"run-{number}", name, _run(result, name, drawn)))
    return views


def _run(result: dict[str, Any], name: str, drawn: list[dict[str, Any]]) -> str:
    """Return the HTML about one run."""
    tiles = "".join(
        f"<div><dt>{label}</dt><dd>{result[key]:.2f}</dd></div>"
        for key, label in FIGURES.items()
        if result.get(key) is not None
    )
    cards = _cards(charts_of(result), drawn)
    tasks = "".join(f"<li>{escape(task)}</li>" for task in result["tasks"])
    cost = [[label, f"{result[key]:,}"] for key, label in COSTS.items() if result.get(key) is not None]
    cost += cost_rows(result)
    return (
        f'<h2>{escape(name)}</h2><dl class="tiles">{tiles}</dl>'
        f"<details><summary>{len(result['tasks'])} tasks</summary><ol>{tasks}</ol></details>"
        f'<div class="grid">{cards}<section class="card"><h3>Cost</h3>{_table(ChartTable([], cost))}</section>'
        f'<section class="card"><h3>Configuration</h3>{_table(ChartTable([], _configuration(result)))}</section>'
        f'<section class="card"><h3>The command that repeats it</h3>'
        f"<pre><code>{escape(command_of(result['config'], NEXT_LINE))}</code></pre></section></div>"
    )


def _configuration(result: dict[str, Any]) -> list[list[Any]]:
    """Return the settings that say something, and what it ran on."""
    flat: dict[str, Any] = {}
    for name, value in result["config"].items():
        flat |= value if isinstance(value, dict) else {name: value}
    rows: list[list[Any]] = []
    for name, value in flat.items():  # a setting that is not made says nothing; 0 is made, though it equals False
        if name != "device" and value is not None and value is not False and value != []:
            rows.append([name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)])
    rows += [["device", result["device"]]] if result.get("device") else []
    return rows + [[f"version of {name}", value] for name, value in (result.get("versions") or {}).items()]


def _cards(charts: Iterable[Chart], drawn: list[dict[str, Any]]) -> str:
    return "".join(_card(chart, drawn) for chart in charts)


def _card(chart: Chart, drawn: list[dict[str, Any]]) -> str:
    """Return a chart's place in the page, its words and its table."""
    head = f"<h3>{escape(chart.title)}</h3><p>{escape(chart.note)}</p>"
    if not chart.traces:
        return f'<section class="card">{head}</section>'
    drawn.append({"data": chart.traces, "layout": chart.layout, "height": chart.height})
    place = (
        f'<div class="chart" role="img" aria-label="{escape(chart.title)}: a chart of the table below it" '
        f'data-chart="{len(drawn) - 1}" style="height:{chart.height}px"></div>'
    )
    table = f"<details><summary>As a table</summary>{_table(chart.table)}</details>" if chart.table else ""
    return f'<section class="card">{head}{place}{table}</section>'


def _table(table: ChartTable) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.heads)
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    body = ""
    for first, *rest in table.rows:
        cells = "".join(f"<td>{_cell(value, table.digits)}</td>" for value in rest)
        body += f'<tr><th scope="row">{_cell(first, table.digits)}</th>{cells}</tr>'
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>'


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else escape(str(value))


def command_of(config: dict[str, Any], between: str = " ") -> str:
    """Return the ``ucb run`` that gives this configuration; ``between`` stands between its options."""
    words = [["ucb", "run", config["benchmark"]], ["--method", config["method"]]]
    words += [[f"--{name}", _option_value(config[name])] for name in OPTIONS if config.get(name) is not None]
    words += [[f"--{name.replace('_', '-')}"] for name in FLAGS if config.get(name)]
    words += [["--data", folder] for folder in config.get("data") or []]
    for part in ("net_options", "training", "settings"):
        for name, value in (config.get(part) or {}).items():
            if isinstance(value, list):  # the units of hidden layers: the one setting that is a list
                words += [[f"--{name}", _option_value(each)] for each in value]
            else:
                words.append(["--set", f"{name}={_option_value(value)}"])
    return between.join(shlex.join(option) for option in words)


def _option_value(value: Any) -> str:
    """Return a value as the command takes it: 2.0 is no whole number there, but 2 is a number of any kind."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
