"""Our tables: their rows, the paper's row beside each, and the job that each row is measured by.

What stands in the tables comes from one data file.
"""

from __future__ import annotations

import dataclasses
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import torch

from ucb.checks import nearest
from ucb.data.streams import benchmark
from ucb.engine.config import Job, Recipe, apply_recipe, recipe_for
from ucb.methods import find_method
from ucb.methods.bayesian import BayesianMethod
from ucb.nets import build_net
from ucb.storage import rename_old_keys

ROOM = "tables"
"""Results are in results/tables, runs under way in runs/tables."""
MNIST = (1, 28, 28)
MOST_UNITS = 1 << 16
SAME_IN_JOB = ("tasks", "single_head", "apart", "task_told", "faces", "net")
"""What a row and its job call by the same name."""


@dataclass(frozen=True)
class PaperPlace:
    """Which row of the paper's table, and in which columns ACC and BWT stand."""

    row: str
    of: Mapping[str, float | str] = field(default_factory=dict)
    acc: str = "ACC"
    bwt: str = "BWT"


@dataclass(frozen=True)
class ReproducedRow:
    """One row of ours. What is None or empty is the method's, the recipe's or the benchmark's own choice."""

    method: str | None
    """None where ``obstacle`` says why it cannot be run."""
    variant: str = ""
    paper: PaperPlace | None = None
    """None for rows that only we have."""
    benchmark: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of method, training and net that differ from the recipe's."""
    tasks: int | None = None
    single_head: bool = False
    apart: bool = False
    """With a single head: an output for each class of each task."""
    task_told: bool = False
    """With a single head: the task is told at test time."""
    net: str | None = None
    faces: str | None = None
    budget: int | None = None
    """Stored values of the net, to which an MLP's width is matched: mu and rho count as two."""
    recipe: str = ""
    """A folder of recipes that goes before the benchmark's own."""
    better_of: str = ""
    """Of the rows with the same word here the better one is shown."""
    same_as: str = ""
    """TABLE/ROW whose runs serve this row too."""
    note: str = ""
    """Why the paper's figure may not be reached, where that is known."""
    remark: str = ""
    """What must be known to read the row's figure, whatever it is."""
    quoted: bool = False
    """Whether the paper has its figure from another work."""
    obstacle: str = ""

    @property
    def name(self) -> str:
        """The row's name in files and commands."""
        return "-".join(part for part in (self.method, self.variant) if part)

    @property
    def has_recipe(self) -> bool:
        """Whether settings were chosen for the row; otherwise it runs with the method's defaults."""
        return recipe_of(self) != Recipe()


@dataclass(frozen=True)
class ReproducedTable:
    """A table of ours. ``paper`` names the paper's: the first has the figures, a second their spreads."""

    id: str
    about: str
    paper: tuple[str, ...]
    rows: tuple[ReproducedRow, ...]

    def row(self, name: str) -> ReproducedRow:
        """Return the row of that name."""
        known = {row.name: row for row in self.rows}
        if name not in known:
            raise ValueError(f"the table {self.id} has no row {name!r}: {nearest(name, known)}")
        return known[name]


@cache
def tables() -> dict[str, ReproducedTable]:
    """Return every table by its id."""
    content = json.loads((files("ucb.experiments.reproduce") / "tables.json").read_text())
    return {values["id"]: from_values(values) for values in content["tables"]}


def table_named(name: str) -> ReproducedTable:
    """Return the table with that id; for a wrong one the nearest right ones are offered."""
    if name not in tables():
        raise ValueError(f"there is no table {name!r}: {nearest(name, tables())}")
    return tables()[name]


def from_values(values: Mapping[str, Any]) -> ReproducedTable:
    """Return a table from plain values; what all rows share may stand beside them."""
    shared = {name: values[name] for name in ("benchmark", "budget", "faces", "recipe") if name in values}
    rows = []
    for row in values["rows"]:
        paper = row.get("paper")
        place = PaperPlace(**paper) if isinstance(paper, Mapping) else None if paper is None else PaperPlace(paper)
        rows.append(ReproducedRow(**{**shared, **row, "paper": place}))
    return ReproducedTable(values["id"], values["about"], tuple(values["paper"]), tuple(rows))


def home_of(table: ReproducedTable, row: ReproducedRow) -> tuple[ReproducedTable, ReproducedRow]:
    """Return the table and the row under which a row's runs are kept."""
    if not row.same_as:
        return table, row
    other, _, name = row.same_as.partition("/")
    home = table_named(other)
    return home, home.row(name)


def job_of(row: ReproducedRow, seed: int = 0, device: str = "cpu") -> Job:
    """Return the job that a row is measured by."""
    if row.method is None or row.same_as:
        raise ValueError(f"{row.name} is no run of its own: {row.obstacle or row.same_as}")
    same = {name: getattr(row, name) for name in SAME_IN_JOB}
    order = Job(row.benchmark, row.method, seed, device=device, **same)
    values = dict(row.settings)
    if row.budget is not None and "hidden" not in values:
        values["hidden"] = [units_for(row.budget, order)]
    return apply_recipe(order, values, recipe_of(row))


def recipe_of(row: ReproducedRow) -> Recipe:
    """Return the recipe of the row's own folder, or else the benchmark's; without either the method's defaults."""
    assert row.method is not None
    own = recipe_for(row.recipe, row.method) if row.recipe else Recipe()
    return recipe_for(row.benchmark, row.method) if own == Recipe() else own


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Return an earlier run's configuration with every choice that it may not name: it had its default then."""
    return {**dataclasses.asdict(Job("", "")), **rename_old_keys(config)}


def differences(old: dict[str, Any], job: Job) -> list[str]:
    """Say in what an earlier run's configuration differs from a job; the device does not count."""
    old, new = complete(old), dataclasses.asdict(job)
    found = []
    for name in sorted({*old, *new} - {"device"}):
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            keys = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key)]
            found += [f"{key} was {was.get(key, 'not set')} and is {now.get(key, 'not set')}" for key in keys]
        elif was != now:
            found.append(f"{name} was {was} and is {now}")
    return found


def units_for(budget: int, order: Job) -> int:
    """Return the units of one hidden layer with which the order's net comes nearest to ``budget`` stored values."""
    heads = head_sizes(order.benchmark, order.tasks, order.single_head, order.apart)
    each = 2 if issubclass(find_method(order.method), BayesianMethod) else 1  # a Gaussian weight has mu and rho

    def stored(units: int) -> int:
        return each * count_weights(units, heads)

    above = max(2, bisect_left(range(MOST_UNITS), budget, lo=1, key=stored))
    return min(above - 1, above, key=lambda units: abs(stored(units) - budget))


@cache
def count_weights(units: int, heads: Sequence[int]) -> int:
    """Count the weights of an MLP for MNIST with one hidden layer."""
    with torch.device("meta"):  # counted, never filled
        return sum(p.numel() for p in build_net("mlp", MNIST, heads, {"hidden": [units]}).parameters())


@cache
def head_sizes(name: str, tasks: int | None, single_head: bool, apart: bool) -> tuple[int, ...]:
    """Return the outputs of every head of a benchmark's net."""
    return benchmark(name, tasks=tasks, single_head=single_head, shared_outputs=False if apart else None).head_sizes
