"""A row becomes a job, with the recipe's settings, as ``ucb run`` takes them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ucb.engine import Job
from ucb.engine.ordering import with_recipe
from ucb.engine.recipes import Recipe, recipe_for
from ucb.old_names import under_present_names
from ucb.reproduce.definitions import Row
from ucb.reproduce.width import units_for

ROOM = "tables"
"""Results are in results/tables, runs under way in runs/tables."""


def job_of(row: Row, seed: int = 0, device: str = "cpu") -> Job:
    """Return the job that a row is measured by."""
    if row.method is None or row.same_as:
        raise ValueError(f"{row.name} is no run of its own: {row.obstacle or row.same_as}")
    order = Job(
        row.benchmark,
        row.method,
        seed,
        row.tasks,
        row.single_head,
        apart=row.apart,
        task_told=row.task_told,
        faces=row.faces,
        net=row.net,
        device=device,
    )
    values = dict(row.settings)
    if row.budget is not None and "hidden" not in values:
        values["hidden"] = [units_for(row.budget, order)]
    return with_recipe(order, values, recipe_of(row))


def recipe_of(row: Row) -> Recipe:
    """Return the recipe of the row's own folder, or else the benchmark's; without either the method's defaults."""
    assert row.method is not None
    own = recipe_for(row.recipe, row.method) if row.recipe else Recipe()
    return recipe_for(row.benchmark, row.method) if own == Recipe() else own


def has_recipe(row: Row) -> bool:
    """Whether settings were chosen for a row; otherwise it runs with the method's defaults."""
    return recipe_of(row) != Recipe()


def result_file(results: Path, table: str, row: str, seed: int) -> Path:
    """Return where a row's result is kept."""
    return results / ROOM / table / f"{row}-seed{seed}.json"


def run_folder(runs: Path, table: str, row: str, seed: int) -> Path:
    """Return where a row's run is under way."""
    return runs / ROOM / table / f"{row}-seed{seed}"


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """Return an earlier run's configuration with every choice that it may not name: it had its default then."""
    return {**dataclasses.asdict(Job("", "")), **under_present_names(config)}


def differences(old: dict[str, Any], job: Job) -> list[str]:
    """Say in what an earlier run's configuration differs from a job; the device does not count."""
    old, new = completed(old), dataclasses.asdict(job)
    found = []
    for name in sorted({*old, *new} - {"device"}):
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            keys = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key)]
            found += [f"{key} was {was.get(key, 'not set')} and is {now.get(key, 'not set')}" for key in keys]
        elif was != now:
            found.append(f"{name} was {was} and is {now}")
    return found
