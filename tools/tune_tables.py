"""Choose the settings of every row of a table, as `ucb tune` does, all in one process.

    python tools/tune_tables.py TABLE [--methods ucb,hat] [--recipe NAME] [--device cuda] [--jobs 12]

Every method has its own grid, on the net that its row is measured with; the search goes on where the best lies at its
edge. Held-out data of all tasks judges: two that are easily told apart show no forgetting, and two permutations do not
foretell what ten will forget. With the large net on Permuted MNIST that takes long, and only the methods that UCB is
compared with first of all are judged so, and SI and MAS, which two tasks had misjudged; the others by the first two.
The prior of UCB and of its control is chosen after the rates, from the paper's 27. On photographs every method has six
trials of 12 epochs a task, and held-out data of all tasks judges. Trials are kept in results/tuning, recipes in
src/ucb/recipes; what has been tried is not tried again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ucb.engine import Job
from ucb.experiments.reproduce.definitions import ReproducedRow, table_named, units_for
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import Point, Search, grid_of, points_of, values_of
from ucb.experiments.tuning.trials import search_grid, widen_search
from ucb.methods import known_methods

ROOT = Path(__file__).resolve().parent.parent
Values = dict[str, tuple[Any, ...]]

SPLIT: dict[str, Values] = {
    "ucb": {"lr": (0.5, 1.0, 2.0), "temperature": (0.001, 0.01), "gain": (0.1, 0.25, 0.5, 1.0)},
    "uniform-lr": {
        "lr": (1.0, 2.0),
        "temperature": (0.001,),
        "gain": (1.0,),
        "constant": (0.003, 0.01, 0.03, 0.1, 0.25),
    },
    "ucb-ng": {"lr": (0.3, 0.5, 1.0), "temperature": (5e-5, 5e-4, 5e-3), "power": (1.0, 2.0), "clip": (1.0,)},
    "mas": {"lr": (0.03, 0.1, 0.3), "strength": (0.001, 0.01, 0.1, 1.0, 10.0)},
}
"""What is tried instead of a method's own grid: where sigma is small beside 1, factors on it have to be large."""

LARGE: dict[str, Values] = {
    "ucb": {"lr": (0.1, 0.3), "temperature": (0.001,), "gain": (5.0, 15.0)},
    "uniform-lr": {"lr": (0.1, 0.3), "temperature": (0.001,), "gain": (1.0,), "constant": (0.05, 0.15)},
    "ucb-ng": {"lr": (0.1, 0.2), "temperature": (0.001, 0.003, 0.01), "power": (1.0, 2.0)},
    "ord-ft": {"lr": (0.03, 0.1, 0.3)},
    "hat": {"lr": (0.1, 0.3), "sparsity": (0.25,), "smax": (100.0, 400.0)},
    "bbb-ft": {"lr": (0.1, 0.3, 1.0), "temperature": (0.001,)},
    "bbb-fe": {"lr": (0.1, 0.3, 1.0), "temperature": (0.001,)},
    "bbb-jt": {"lr": (0.1, 0.3, 1.0), "temperature": (0.001,)},
    "ucb-p": {"lr": (0.1, 0.3, 1.0), "temperature": (0.001,)},
    "lwf": {"lr": (0.03, 0.1), "strength": (0.5, 2.0), "temperature": (2.0,)},
    "si": {"lr": (0.1, 0.3), "strength": (0.1, 0.3, 1.0, 3.0)},
    "mas": {"lr": (0.1, 0.3), "strength": (0.1, 1.0, 10.0)},
}
"""With 1.9M stored values on Permuted MNIST."""

SMALL: dict[str, Values] = {
    "ucb": {"lr": (0.1, 0.3), "temperature": (0.001,), "gain": (1.0, 2.0, 5.0)},
    "uniform-lr": {"lr": (0.1, 0.3), "temperature": (0.001,), "gain": (1.0,), "constant": (0.03, 0.1, 0.25)},
    "ucb-ng": {"lr": (0.05, 0.1), "temperature": (0.01, 0.03, 0.1), "power": (1.0, 2.0)},
    "ord-ft": {"lr": (0.01, 0.03, 0.1)},
    "hat": {"lr": (0.1,), "sparsity": (0.1, 0.25, 0.75), "smax": (100.0, 400.0)},
    "bbb-ft": {"lr": (0.01, 0.03, 0.1), "temperature": (0.001,)},
    "si": {"lr": (0.01, 0.03), "strength": (0.1, 0.3, 1.0, 3.0)},
    "ewc": {"lr": (0.01, 0.03), "strength": (500.0, 5000.0, 50000.0)},
    "mas": {"lr": (0.01, 0.03), "strength": (0.1, 1.0, 10.0)},
    "vcl": {"lr": (0.001, 0.003), "init_std_ratio": (0.05, 1.0)},
    "vcl-gng": {"lr": (0.001, 0.003), "init_std_ratio": (0.05, 1.0)},
}
"""With 56 units, where every trial learns all ten tasks."""

IMPORTANCE: dict[str, Values] = {
    "rho-certainty": {
        "lr": (0.03, 0.1, 0.3),
        "temperature": (0.01,),
        "gain": (1.0,),
        "on": ("rho",),
        "importance": ("certainty",),
    },
    "mu-snr": {
        "lr": (0.3, 1.0),
        "temperature": (0.01,),
        "gain": (0.003, 0.03, 0.3),
        "on": ("mu",),
        "importance": ("snr",),
    },
}
"""UCB with importance in other ways, on 2-Split MNIST: |mu|/sigma is small beside 1/sigma, and where only rho has rates
of its own nothing holds mu back but a small rate for all. Rho hardly moves: |mu|/sigma on both takes the settings of
|mu|/sigma on mu, and on rho those of 1/sigma on rho."""


def around(centre: Point, *others: Point) -> list[Point]:
    """Return a point, and those that differ from it as the others say."""
    return [centre, *({**centre, **other} for other in others)]


SAMPLED = {"samples": 2, "estimator": "weights"}
"""Weights are sampled as the paper does, twice a step instead of ten times: more take as many times as long."""

CIFAR: dict[str, list[Point]] = {
    "ord-ft": points_of({"lr": (0.01, 0.03, 0.1), "clip": (0.0, 1.0)}),
    "hat": around(
        {"lr": 0.05, "sparsity": 0.75, "smax": 400.0},
        {"sparsity": 0.25},
        {"sparsity": 1.5},
        {"smax": 200.0},
        {"lr": 0.1},
        {"lr": 0.025},
    ),
    "packnet": around(
        {"lr": 0.05, "prune": 0.75}, {"prune": 0.5}, {"prune": 0.9}, {"prune": 0.95}, {"lr": 0.1}, {"lr": 0.025}
    ),
    "ewc": around(
        {"lr": 0.05, "strength": 100.0},
        {"strength": 1.0},
        {"strength": 10.0},
        {"strength": 1000.0},
        {"strength": 5000.0},
        {"lr": 0.02},
    ),
    "bbb-ft": around(
        {"lr": 0.05, "temperature": 0.001, "init_std_ratio": 0.1, **SAMPLED},
        {"lr": 0.15},
        {"lr": 0.015},
        {"init_std_ratio": 0.5},
        {"init_std_ratio": 0.02},
        {"temperature": 1e-5},
    ),
    "ucb-p": around(
        {"lr": 0.05, "temperature": 0.001, "init_std_ratio": 0.1, "tolerance": 2.0, **SAMPLED},
        {"lr": 0.15},
        {"lr": 0.015},
        {"init_std_ratio": 0.5},
        {"temperature": 1e-5},
        {"lr": 0.15, "init_std_ratio": 0.5},
    ),
    "ucb": around(
        {"lr": 0.05, "temperature": 0.001, "init_std_ratio": 0.5, "gain": 5.0, **SAMPLED},
        {"gain": 20.0},
        {"lr": 0.15},
        {"lr": 0.15, "gain": 1.0},
        {"lr": 0.15, "init_std_ratio": 0.1, "gain": 20.0},
        {"init_std_ratio": 0.1, "gain": 100.0},
    ),
}
"""Six points for each method on alternating CIFAR: what its authors use or a first look found, and steps from it."""

TABLES = ("importance", "5split-mnist", "2split-mnist", "permuted-mnist", "cifar-alternating")

COMPARED = frozenset({"ucb", "ucb-ng", "uniform-lr", "ord-ft", "hat"})


class Kind(NamedTuple):
    """What the searches of one recipe's methods have in common."""

    instead: dict[str, Values]
    by_all: frozenset[str] = frozenset(known_methods())
    """The methods that all tasks judge; the first two judge the others."""
    widen: int = 0
    """How many steps to go beyond a grid while its best lies at its edge."""
    prior: bool = False
    """Whether UCB's prior is searched too."""
    points: Mapping[str, list[Point]] | None = None
    """What is tried of each method, where it is no grid; methods without points are not searched."""
    epochs: int = 10
    """Epochs a task of every trial."""
    recipe_epochs: int = 10


KINDS = {
    "5split-mnist": Kind(SPLIT, prior=True, widen=3),
    "2split-mnist": Kind(SPLIT, widen=3),
    "permuted-mnist": Kind(LARGE, by_all=COMPARED | {"si", "mas"}, widen=3),
    "permuted-mnist-0.1m": Kind(SMALL, widen=3),
}
KINDS |= {
    f"{name}-uniform": kind._replace(instead={"ucb-ng": kind.instead["ucb-ng"] | {"uniform": (True,)}})
    for name, kind in KINDS.items()
}
"""UCB-NG's control is searched as UCB-NG itself is."""
KINDS |= {f"2split-mnist-{name}": Kind({"ucb": values}, widen=1) for name, values in IMPORTANCE.items()}
KINDS["cifar-alternating"] = Kind({}, points=CIFAR, epochs=12, recipe_epochs=40)


def searches(table: str, device: str, methods: list[str], only: str | None = None) -> list[Search]:
    """Return what is searched: each recipe that a row of the table wants, once, or those of one name."""
    found: dict[tuple[str, str], Search] = {}
    for row in table_named(table).rows:
        name = row.recipe or row.benchmark
        if row.method is None or row.same_as or (methods and row.method not in methods):
            continue
        if name not in KINDS or (only is not None and name != only):
            continue
        kind = KINDS[name]
        if kind.points is not None and row.method not in kind.points:
            continue
        search = Search(
            row.benchmark,
            row.method,
            kind.epochs,
            device,
            all_tasks=row.method in kind.by_all,
            net_options=_net_options(row),
            name=name,
        )
        found.setdefault((name, row.method), search)
    asked = methods or list(known_methods())
    # UCB comes before its control, which takes its settings until it is searched itself.
    return sorted(found.values(), key=lambda s: (asked.index(s.method), s.kind))


def _net_options(row: ReproducedRow) -> dict[str, Any]:
    """Return the width that matches a row's stored values; other nets are as they are."""
    if row.budget is None:
        return {}
    assert row.method is not None
    return {"hidden": [units_for(row.budget, Job(row.benchmark, row.method))]}


def tune(search: Search, kind: Kind, jobs: int) -> None:
    """Search one recipe and write it."""
    record, recipes = TrialRecord(search, ROOT / "results"), ROOT / "src" / "ucb" / "recipes"
    if kind.points is not None:
        points = kind.points[search.method]
        grid = values_of(points)
    else:
        grid = grid_of(search.method, instead=kind.instead.get(search.method, {}))
        points = points_of(grid)
    begun = time.monotonic()
    search_grid(record, points, jobs, lambda found: None)
    if kind.widen:
        earlier = [trial["settings"] for trial in record.trials if trial["settings"].keys() == grid.keys()]
        points += [point for point in earlier if point not in points]
        points = widen_search(record, points, kind.widen, jobs, lambda found: None)
        grid = values_of(points)
    recipe = record.recipe(grid, points, kind.recipe_epochs)
    if kind.prior and search.method in ("ucb", "uniform-lr"):
        chosen = {name: (value,) for name, value in recipe["settings"].items()}
        grid = grid_of(search.method, prior=True, instead=chosen)
        points = points_of(grid)
        search_grid(record, points, jobs, lambda found: None)
        recipe = record.recipe(grid, points, kind.recipe_epochs)
    record.write_recipes(recipe, recipes)
    seconds = time.monotonic() - begun
    print(f"{search.kind} {search.method}: {recipe['found']}: {recipe['settings']} ({seconds:.0f} s)", flush=True)


def main() -> None:
    """Search what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--methods", help="Only these, with commas between, in this order.")
    parser.add_argument("--recipe", choices=KINDS, help="Only recipes of this name.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="After so many, begin no new search.")
    args = parser.parse_args()
    methods = args.methods.split(",") if args.methods else []
    end = time.monotonic() + args.seconds
    for search in searches(args.table, args.device, methods, args.recipe):
        if time.monotonic() > end:
            print(f"no time for {search.kind} {search.method}")
            continue
        tune(search, KINDS[search.kind], args.jobs)


if __name__ == "__main__":
    main()
