"""Choose a method's settings for a benchmark on held-out data of its first two tasks, and write its recipe.

Test data is out of reach: each task's test set is replaced by its validation set before anything runs. The grid is the
method's own (``Settings.grid``); every trial is kept in results/tuning/. With ``--all-tasks`` held-out data of all
tasks decides: that sees the forgetting that two tasks cannot show, and costs more.

    python benchmarks/choose_recipe.py mnist-5split ucb [--device cuda] [--epochs 6] [--jobs 2]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from ucb.engine import DivergedError, Job, job
from ucb.engine.job import method_named
from ucb.engine.settings import kinds_of
from ucb.stream import Stream, benchmark
from ucb.stream.benchmarks import find

ROOT = Path(__file__).parent.parent
RULE = (
    "projected NLL: that of each of the first two tasks right after it was learnt, plus the first one's rise while the "
    "second was learnt times the mean number of later tasks, (n - 1) / 2; of all settings within one standard error of "
    "the lowest, the one whose first task rose least"
)
ALL_TASKS_RULE = "lowest mean NLL of all tasks after the last one was learnt"


def without_test_data(name: str, seed: int, **options: object) -> Stream:
    stream = benchmark(name, seed, **options)  # type: ignore[arg-type]
    tasks = tuple(dataclasses.replace(task, test=task.validation) for task in stream.tasks)
    return dataclasses.replace(stream, tasks=tasks)


def projected_nll(learnt: list[float], risen: float, tasks: int) -> float:
    """Return the mean NLL to expect after ``tasks`` tasks: two tasks show a single step of forgetting."""
    return statistics.mean(learnt) + max(risen, 0.0) * (tasks - 1) / 2


GRID: dict[str, tuple[Any, ...]] = {}
"""What the command line says to try, instead of the methods' own."""
Point = tuple[str, dict[str, Any]]
"""A method and settings to try."""


def trial(
    point: Point,
    *,
    name: str,
    epochs: int,
    device: str,
    threads: int,
    blur: float | None = None,
    tasks: int | None = 2,
) -> dict[str, Any]:
    """Learn the first tasks; return what held-out data says of the settings."""
    method, settings = point
    torch.set_num_threads(threads)
    training = {"epochs": epochs, "eval_samples": 10}
    with mock.patch.object(job, "benchmark", without_test_data):
        run = Job(name, method, tasks=tasks, blur=blur, training=training, settings=settings, device=device).run()
    try:
        run.learn()
    except DivergedError as stop:
        return {"settings": settings, "score": None, "failed": str(stop)}
    own, last = [row[-1] for row in run.judgements], run.judgements[-1]
    learnt = [judged.nll for judged in own]
    risen = statistics.mean(after.nll - before.nll for after, before in zip(last[:-1], own[:-1], strict=True))
    error = math.hypot(*(judged.nll_error for judged in own)) / len(own)
    score = projected_nll(learnt, risen, find(name).tasks) if tasks else statistics.mean(each.nll for each in last)
    print(f"{method} {settings}: {score:.4f}, learnt {statistics.mean(learnt):.4f}, risen {risen:+.4f}", flush=True)
    figures = {"score": score, "error": error, "learnt": learnt, "risen": risen}
    return {"settings": settings, **figures, "acc": run.matrix.acc, "bwt": run.matrix.bwt, "seconds": run.at.seconds}


def choose(found: list[dict[str, Any]], all_tasks: bool = False) -> dict[str, Any]:
    """Return the trial that the rule picks."""
    whole = [each for each in found if each["score"] is not None]
    if not whole:
        raise SystemExit(f"every setting diverged: {found[0]['failed']}")
    best = min(whole, key=lambda each: each["score"])
    if all_tasks:
        return best
    near = [each for each in whole if each["score"] <= best["score"] + best["error"]]
    return min(near, key=lambda each: (each["risen"], each["score"]))


def grid_of(method: str) -> dict[str, Any]:
    """Return what is tried of a method: its own grid, and over it what the command line says."""
    settings = method_named(method).settings_type
    return {**settings.grid(), **{key: GRID[key] for key in GRID if key in kinds_of(settings)}}


def points_of(method: str) -> list[Point]:
    """Return every point of a method's grid."""
    grid = grid_of(method)
    return [(method, dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())]


def trials(points: list[Point], jobs: int, options: dict[str, Any]) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Yield what becomes of every point, as it comes."""
    work: Callable[[Point], dict[str, Any]] = partial(trial, threads=max(1, torch.get_num_threads() // jobs), **options)
    if jobs == 1:
        yield from ((point, work(point)) for point in points)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(work, point): point for point in points}
        yield from ((running[done], done.result()) for done in as_completed(running))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark")
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=6, help="epochs a task, while choosing and in the recipe")
    parser.add_argument("--recipe-epochs", type=int, help="epochs a task in the recipe, if not the same")
    parser.add_argument("--all-tasks", action="store_true", help="let held-out data of all tasks decide")
    parser.add_argument("--blur", type=float, help="let the two tasks fade into each other; one pass")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT)
    parser.add_argument("--grid", nargs="*", default=[], metavar="KEY=V1,V2", help="values to try instead")
    args = parser.parse_args()
    for word in args.grid:
        key, _, values = word.partition("=")
        GRID[key] = tuple(_value(value) for value in values.split(","))
    options = {"name": args.benchmark, "epochs": args.epochs, "device": args.device}
    if args.all_tasks:
        options["tasks"] = None
    kind = args.benchmark
    if args.blur is not None:
        options, kind = options | {"epochs": 1, "blur": args.blur}, f"{args.benchmark}-blurred"
    records = {method: Record(args.out, kind, method, options) for method in args.methods}
    left = [point for method in args.methods for point in points_of(method) if not records[method].has(point[1])]
    for (method, _), found in trials(left, args.jobs, options):
        records[method].add(found)
    for record in records.values():
        record.write_recipe(args.recipe_epochs or args.epochs)


def _value(word: str) -> Any:
    """Return the number that a word says, or the word."""
    try:
        return json.loads(word)
    except ValueError:
        return word


class Record:
    """Everything that was tried of a method, in a file that grows with every trial: a run that was cut goes on."""

    def __init__(self, out: Path, benchmark: str, method: str, options: dict[str, Any]) -> None:
        self.method, self.options = method, options
        which = benchmark if "tasks" not in options else f"{benchmark}-all-tasks"
        self.path = out / "results" / "tuning" / which / f"{method}.json"
        self.recipes = out / "src" / "ucb" / "recipes" / benchmark
        self.trials: list[dict[str, Any]] = []
        if self.path.exists():
            kept = json.loads(self.path.read_text())
            self.trials = kept["trials"] if all(kept.get(key, "?") == value for key, value in options.items()) else []

    @property
    def rule(self) -> str:
        """How the settings are chosen."""
        return ALL_TASKS_RULE if self.options.get("tasks", 2) is None else RULE

    def has(self, settings: dict[str, Any]) -> bool:
        """Whether settings have been tried."""
        return any(trial["settings"] == settings for trial in self.trials)

    def add(self, found: dict[str, Any]) -> None:
        """Add a trial, at once also in the file."""
        self.trials.append(found)
        write(self.path, {**self.options, "method": self.method, "rule": self.rule, "seed": 0, "trials": self.trials})

    def write_recipe(self, epochs: int) -> None:
        """Write the recipe of the method, and of its control."""
        wanted = [settings for _, settings in points_of(self.method)]
        found = [trial for trial in self.trials if trial["settings"] in wanted]
        all_tasks = self.options.get("tasks", 2) is None
        best, which = choose(found, all_tasks), "all tasks" if all_tasks else "the first two tasks"
        recipe = {
            "training": {"epochs": epochs},
            "settings": best["settings"],
            "found": f"chosen of {len(found)} on held-out data of {which}, seed 0: NLL "
            f"{best['score']:.4f}, ACC {best['acc']:.2f}"
            + (f", {self.options['epochs']} epochs a task" * (epochs != self.options["epochs"])),
            "grid": grid_of(self.method),
        }
        write(self.recipes / f"{self.method}.json", recipe)
        if self.method == "ucb":
            control = {"found": "UCB's own settings, so that nothing but the uncertainty differs", "grid": {}}
            write(self.recipes / "uniform-lr.json", recipe | control)


def write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
