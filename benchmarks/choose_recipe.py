"""Choose a method's settings for a benchmark on held-out data of its first two tasks, and write its recipe.

Test data is out of reach: each task's test set is replaced by its validation set before anything runs.

    python benchmarks/choose_recipe.py mnist-5split ucb [--device cuda] [--epochs 5] [--final-epochs 8]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
from pathlib import Path
from typing import Any
from unittest import mock

from ucb.engine import Job, job
from ucb.stream import Stream, benchmark

RECIPES = Path(__file__).parent.parent / "src" / "ucb" / "recipes"
BAYESIAN_GRID = {"lr": [0.1, 0.3, 0.5], "temperature": [0.001, 0.01], "spread": [0.5, 1.0]}
GRIDS: dict[str, dict[str, list[float]]] = {
    "ucb": {**BAYESIAN_GRID, "gain": [5.0, 20.0, 50.0]},
    "uniform-lr": {**BAYESIAN_GRID, "gain": [5.0, 20.0, 50.0]},
    "bbb-ft": BAYESIAN_GRID,
    "ucb-ng": {"lr": [0.1, 0.3, 0.5], "temperature": [0.01, 0.05], "power": [1.0, 2.0], "spread": [0.1]},
    "ord-ft": {"lr": [0.03, 0.1, 0.3, 0.5]},
}


def without_test_data(name: str, seed: int, **options: object) -> Stream:
    stream = benchmark(name, seed, **options)  # type: ignore[arg-type]
    tasks = tuple(dataclasses.replace(task, test=task.validation) for task in stream.tasks)
    return dataclasses.replace(stream, tasks=tasks)


def trials(name: str, method: str, epochs: int, device: str) -> list[dict[str, Any]]:
    """Return every point of the method's grid with what held-out data says of it, the lowest NLL first.

    Accuracy would not do: on two tasks of pairs of digits most settings differ by less than one standard error of it.
    """
    grid = GRIDS[method]
    found = []
    for values in itertools.product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        training = {"epochs": epochs, "eval_samples": 10}
        run = Job(name, method, tasks=2, training=training, settings=settings, device=device).run()
        run.learn()
        nll = statistics.mean(judgement.nll for judgement in run.judgements[-1])
        found.append({"settings": settings, "validation_acc": run.matrix.acc, "bwt": run.matrix.bwt, "nll": nll})
        print(f"{method} {settings}: {run.matrix.acc:.3f} ({run.matrix.bwt:+.3f}), nll {nll:.4f}", flush=True)
    return sorted(found, key=lambda trial: trial["nll"])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark")
    parser.add_argument("methods", nargs="+", choices=GRIDS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=5, help="epochs a task while choosing")
    parser.add_argument("--final-epochs", type=int, default=6, help="epochs a task that the recipe asks for")
    parser.add_argument("--out", type=Path, default=RECIPES)
    args = parser.parse_args()
    with mock.patch.object(job, "benchmark", without_test_data):
        for method in args.methods:
            ranked = trials(args.benchmark, method, args.epochs, args.device)
            best = ranked[0]
            recipe = {
                "training": {"epochs": args.final_epochs},
                "settings": best["settings"],
                "found": f"best of {len(ranked)} by NLL on held-out data of the first two tasks, seed 0, {args.epochs} "
                f"epochs a task: {best['nll']:.4f} (worst {ranked[-1]['nll']:.4f}), ACC {best['validation_acc']:.2f}",
                "grid": GRIDS[method],
            }
            folder = args.out / args.benchmark
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{method}.json").write_text(json.dumps(recipe, indent=1) + "\n")


if __name__ == "__main__":
    main()
