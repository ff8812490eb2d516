"""Of the runs of a table: which settings they had, where these came from, and the commands that choose them anew."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.docs.markdown import table as markdown_table
from tools.tune_tables import TABLES, searches
from ucb.engine import Job
from ucb.engine.config import Recipe, recipe_for
from ucb.experiments.reproduce.definitions import (
    ReproducedRow,
    ReproducedTable,
    complete,
    differences,
    job_of,
    recipe_of,
)
from ucb.experiments.reproduce.planning import results_of
from ucb.methods import find_method

RECIPES = "src/ucb/recipes"
SCRIPT = "python tools/tune_tables.py"


def runs_of(table: ReproducedTable, results: Path) -> Iterator[tuple[ReproducedRow, list[dict[str, Any]]]]:
    """Yield the rows that have runs of their own, with what these found."""
    for row in table.rows:
        if row.method is not None and not row.same_as and (found := results_of(table, row, results)):
            yield row, found


def settings_table(table: ReproducedTable, results: Path) -> str:
    """Return what the runs were set to and how that was found; rows that agree share a line."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for row, found in runs_of(table, results):
        config, recipe = complete(found[0]["config"]), recipe_of(row)
        folder = folder_of(row)
        link = f"[{folder}/{row.method}](../{RECIPES}/{folder}/{row.method}.json)" if folder else "none"
        chosen = _words(config["training"] | config["settings"]) or "defaults"
        lines.setdefault((net_in(config), link, chosen, how_found(row, recipe)), []).append(f"`{row.name}`")
    rows = [[", ".join(names), *line] for line, names in lines.items()]
    return markdown_table(["rows", "net", "recipe", "settings", "how they were found"], rows)


def how_found(row: ReproducedRow, recipe: Recipe) -> str:
    """Say how a row's settings were found."""
    how = recipe.found + (f"; at an edge: {', '.join(edges)}" if (edges := settings_at_edges(recipe)) else "")
    if recipe.tried is not None and f"chosen of {recipe.tried} " not in recipe.found:
        how += f"; {recipe.tried} tried in all, stage by stage"
    changed = ", ".join(name for name, value in row.settings.items() if recipe.settings.get(name) != value)
    return how + (f"; the row changes {changed}" if recipe.found and changed else "")


def settings_at_edges(recipe: Recipe) -> list[str]:
    """Return the settings whose chosen number is the smallest or the largest that was tried."""
    numbers = {name: [each for each in values if type(each) in (int, float)] for name, values in recipe.grid.items()}
    return [
        name
        for name, tried in numbers.items()
        if len(tried) > 1 and recipe.settings.get(name) in (min(tried), max(tried))
    ]


def changed_settings(table: ReproducedTable, results: Path) -> dict[str, list[str]]:
    """Return by row what would be run otherwise today: the recipe was changed after these runs."""
    first = [(row, runs[0]) for row, runs in runs_of(table, results)]
    found = {row.name: differences(run["config"], job_of(row, run["seed"])) for row, run in first}
    return {name: differs for name, differs in found.items() if differs}


def folder_of(row: ReproducedRow) -> str | None:
    """Return the folder of the recipe that a row takes: its own, or else the benchmark's."""
    assert row.method is not None
    return next(
        (name for name in (row.recipe, row.benchmark) if name and recipe_for(name, row.method) != Recipe()), None
    )


def tuning_commands(table: ReproducedTable, results: Path) -> list[str]:
    """Return the commands that choose the settings of a table's runs: one script for many, ``ucb tune`` for others."""
    by_script: dict[str, set[str]] = {}
    alone: dict[str, None] = {}
    scripted = {name: searches(name, "cpu", []) for name in TABLES}
    owners = {(search.kind, search.method): name for name, found in scripted.items() for search in found}
    for row, _ in runs_of(table, results):
        folder = folder_of(row)
        if folder is None or row.method is None:
            continue
        if (folder, row.method) in owners:
            by_script.setdefault(owners[folder, row.method], set()).add(row.method)
        elif command := tune_command(folder, row.method, results):
            alone[command] = None
    lines = []
    for name, methods in by_script.items():
        every = {search.method for search in scripted[name]}
        only = "" if methods == every else f" --methods {','.join(sorted(methods))}"
        lines.append(f"{SCRIPT} {name}{only} --device cuda")
    return [*lines, *alone]


def tune_command(folder: str, method: str, results: Path) -> str | None:
    """Return the ``ucb tune`` that made a recipe, from the record of its trials; None where there is no record."""
    recipe = recipe_for(folder, method)
    kept = f"{folder}-all-tasks" if "all tasks" in recipe.found else folder
    path = results / "tuning" / kept / f"{method}.json"
    if not path.is_file():
        return tune_command(folder, "ucb", results) if method == "uniform-lr" else None
    search = json.loads(path.read_text())
    benchmark = search.get("benchmark", search["name"])  # early records had the one name only
    words = ["ucb", "tune", benchmark, "--method", method, "--epochs", str(search["epochs"])]
    if recipe.training["epochs"] != search["epochs"]:
        words += ["--recipe-epochs", str(recipe.training["epochs"])]
    if kept != folder:
        words.append("--all-tasks")
    words += [f"--{name.replace('_', '-')}" for name in ("single_head", "apart", "task_told") if search.get(name)]
    words += ["--net", search["net"]] if search.get("net") else []
    words += [word for units in search.get("net_options", {}).get("hidden", []) for word in ("--hidden", str(units))]
    own = {name: list(values) for name, values in find_method(method).settings_type.grid().items()}
    if recipe.grid != own:
        for name, values in recipe.grid.items():
            words += ["--grid", f"{name}={','.join(map(str, values))}"]
    words += ["--name", folder] if folder != benchmark else []
    words += ["--device", search["device"]] if search["device"] != "cpu" else []
    return shlex.join([*words, "--out", RECIPES])


def net_in(config: Mapping[str, Any]) -> str:
    """Say which net a run had."""
    options = dict(config["net_options"])
    units = "-".join(str(each) for each in options.pop("hidden", []))
    return " ".join(part for part in (Job(**config).net_name, units, _words(options)) if part)


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in values.items()
    )
