"""The paper's image streams with one head and the task hidden, learnt by `ucb learn` with a pretrained trunk.

    python benchmarks/pretrained_tasks.py [cifar-alternating] [eight-datasets] [--seed 0] [--remember FOLDER]

Each task is a wave of new classes; afterwards all test images are classified among all classes, with no task told. The
trunk was trained on ImageNet, so this is no comparison of like with like: the paper's net begins with random weights.
Writes one JSON file for each stream: accuracy on each task right after it and at the end, ACC and BWT in percent.
The data sets are read from the folder that UCB_DATA names.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ucb
from benchmarks.waves import load, remember
from ucb.incremental import Model
from ucb.incremental.predict import predict_batch
from ucb.seeds import generator_for

TRUNK = "efficientnet-lite0"
EIGHT = ("lfw100", "mnist", "cifar100", "notmnist", "svhn", "cifar10", "traffic_signs", "fashion_mnist")
ROWS = 512


class Task(NamedTuple):
    """The training and test images of a task, with classes by name."""

    name: str
    x: Tensor
    labels: list[str]
    x_test: Tensor
    labels_test: list[str]


def make_task(data: str, name: str, first: int, last: int) -> Task | None:
    """Return the classes from ``first`` to before ``last`` of a data set as a task."""
    found = load(data)
    if found is None:
        return None
    parts: list[Any] = []
    for x, y in ((found[0], found[1]), (found[2], found[3])):
        rows = (y >= first) & (y < last)
        colours = x[rows] if x.shape[1] == 3 else x[rows].expand(-1, 3, -1, -1)
        parts += [colours, [f"{data} {int(label)}" for label in y[rows]]]
    return Task(name, *parts)


def make_tasks(stream: str, seed: int) -> list[Task] | None:
    """Return the tasks of a stream in their order, or None where data are not here."""
    if stream == "eight-datasets":
        tasks = [make_task(data, data, 0, 1 << 30) for data in EIGHT]
    else:
        pairs = [("cifar10", first, first + 2) for first in range(0, 10, 2)]
        pairs += [("cifar100", first, first + 20) for first in range(0, 100, 20)]
        order = torch.randperm(len(pairs), generator=generator_for("order of tasks", seed)).tolist()
        tasks = [
            make_task(data, f"{data} {first}-{last - 1}", first, last)
            for data, first, last in (pairs[n] for n in order)
        ]
    there = [task for task in tasks if task is not None]
    return there if len(there) == len(tasks) else None


def judge(model: Model, task: Task) -> float:
    """Return the percentage of a task's test images that are judged right among all classes so far."""
    given = torch.cat([predict_batch(model, some).prediction.label for some in task.x_test.split(ROWS)])
    return 100 * float((given == model.numbers_of(task.labels_test)).double().mean())


def measure(stream: str, tasks: list[Task], seed: int) -> dict[str, Any]:
    """Learn the tasks one after another."""
    model, then = Model(trunk=TRUNK, seed=seed), []
    for task in tasks:
        model.learn((task.x, task.labels), task.name)
        then.append(judge(model, task))
        print(stream, task.name, f"{then[-1]:.2f}", flush=True)
    now = [judge(model, task) for task in tasks]
    return {
        "stream": stream,
        "seed": seed,
        "trunk": model.learner.trunk.facts,
        "features": model.learner.trunk.features,
        "ridge": model.learner.head.ridge,
        "tasks": [task.name for task in tasks],
        "right_after_each_task": then,
        "right_at_the_end": now,
        "acc": sum(now) / len(now),
        "bwt": sum(a - b for a, b in zip(now[:-1], then[:-1], strict=True)) / max(1, len(now) - 1),
        "versions": {"ucb": ucb.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", default=["cifar-alternating", "eight-datasets"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--remember", type=Path, help="a folder for what the net shows of each image")
    parser.add_argument("--out", type=Path, default=Path("results/waves/pretrained-tasks"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    remembered = remember(options.remember, TRUNK)
    for stream in options.streams:
        tasks = make_tasks(stream, options.seed)
        if tasks is None:
            print(f"not all data of {stream} are here: name their folder with UCB_DATA")
            continue
        found = measure(stream, tasks, options.seed)
        (options.out / f"{stream}-seed{options.seed}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1), flush=True)
        if remembered is not None:
            remembered.keep()


if __name__ == "__main__":
    main()
