"""Choose a method's settings for a benchmark on held-out data of its first two tasks, and write its recipe.

Test data is out of reach: each task's test set is replaced by its validation set before anything runs. The grid is the
method's own (``Method.grid``); every trial is kept in results/tuning/.

    python benchmarks/choose_recipe.py mnist-5split ucb [--device cuda] [--epochs 6] [--jobs 2]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from ucb.engine import Job, job
from ucb.engine.job import method_named
from ucb.stream import Stream, benchmark
from ucb.stream.benchmarks import find

ROOT = Path(__file__).parent.parent
RULE = (
    "lowest projected NLL: that of each of the first two tasks right after it was learnt, plus the first one's rise "
    "while the second was learnt times the mean number of later tasks, (n - 1) / 2"
)


def without_test_data(name: str, seed: int, **options: object) -> Stream:
    stream = benchmark(name, seed, **options)  # type: ignore[arg-type]
    tasks = tuple(dataclasses.replace(task, test=task.validation) for task in stream.tasks)
    return dataclasses.replace(stream, tasks=tasks)


def projected_nll(learnt: list[float], risen: float, tasks: int) -> float:
    """Return the mean NLL to expect after ``tasks`` tasks: two tasks show a single step of forgetting."""
    return statistics.mean(learnt) + max(risen, 0.0) * (tasks - 1) / 2


def trial(
    settings: dict[str, Any], *, name: str, method: str, epochs: int, device: str, threads: int
) -> dict[str, Any]:
    """Learn the first two tasks; return what held-out data says of the settings."""
    torch.set_num_threads(threads)
    training = {"epochs": epochs, "eval_samples": 10}
    with mock.patch.object(job, "benchmark", without_test_data):
        run = Job(name, method, tasks=2, training=training, settings=settings, device=device).run()
    try:
        run.learn()
    except RuntimeError as error:  # it diverged
        return {"settings": settings, "score": None, "failed": str(error)}
    (first,), (later, second) = ([judged.nll for judged in row] for row in run.judgements)
    score = projected_nll([first, second], later - first, find(name).tasks)
    figures = {"score": score, "learnt": [first, second], "risen": later - first}
    print(f"{method} {settings}: {score:.4f}, learnt {first:.4f} {second:.4f}, risen {later - first:+.4f}", flush=True)
    return {"settings": settings, **figures, "acc": run.matrix.acc, "bwt": run.matrix.bwt}


def trials(points: list[dict[str, Any]], jobs: int, **options: Any) -> list[dict[str, Any]]:
    """Return what became of every point, the best first."""
    work = partial(trial, threads=max(1, torch.get_num_threads() // jobs), **options)
    if jobs == 1:
        found = [work(point) for point in points]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(work, points))
    return sorted(found, key=lambda each: (each["score"] is None, each["score"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark")
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=6, help="epochs a task, while choosing and in the recipe")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT)
    args = parser.parse_args()
    for method in args.methods:
        grid = method_named(method).settings_type.grid()
        points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        options = {"name": args.benchmark, "method": method, "epochs": args.epochs, "device": args.device}
        ranked = trials(points, args.jobs, **options)
        best = ranked[0]
        recipe = {
            "training": {"epochs": args.epochs},
            "settings": best["settings"],
            "found": f"best of {len(ranked)} on held-out data of the first two tasks, seed 0: projected NLL "
            f"{best['score']:.4f}, ACC {best['acc']:.2f}",
            "grid": grid,
        }
        write(args.out / "src" / "ucb" / "recipes" / args.benchmark / f"{method}.json", recipe)
        record = {**options, "rule": RULE, "seed": 0, "trials": ranked}
        write(args.out / "results" / "tuning" / args.benchmark / f"{method}.json", record)


def write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
