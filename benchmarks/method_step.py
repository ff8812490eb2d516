"""What one training step costs with every method, beside ord-ft: MLP 784-1200, batch 64, fifth task.

The two take turns in one process, and the ratio is that of the medians. Settings are those of 5-Split MNIST's recipes.

    python benchmarks/method_step.py [--threads 1] [--repeats 30] [--out results/bench/methods.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucb.engine import Job
from ucb.engine.config import recipe_for
from ucb.engine.result import device_name, versions
from ucb.methods import Method, TaskInfo, known_methods

BENCHMARK, TASKS, BATCH, BATCHES = "mnist-5split", 5, 64, 4


class Noise:
    """Data of a task that nobody will look at."""

    def __init__(self) -> None:
        self.x, self.y = torch.randn(BATCH * BATCHES, 1, 28, 28), torch.randint(2, (BATCH * BATCHES,))

    def train(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield it in batches."""
        yield from zip(self.x.split(BATCH), self.y.split(BATCH), strict=True)

    validation = train


def in_the_fifth_task(name: str, data: Noise) -> Method:
    """Return a method that has learnt four tasks, in a few steps each, and begun the fifth."""
    settings = recipe_for(BENCHMARK, name).settings
    method = Job(BENCHMARK, name, settings=settings).run().method
    for task in range(TASKS):
        outputs = range(2 * task, 2 * task + 2) if method.is_joint else range(2)
        method.begin_task(TaskInfo(task, len(data.y), task, outputs, BATCHES))
        if task == TASKS - 1:
            break
        for phase in range(len(method.phases())):
            if phase:
                method.begin_phase(phase, data)
            for x, y in data.train():
                method.learn(x, y + (outputs.start if method.is_joint else 0))
        method.end_task(data)
    return method


def seconds(method: Method, x: Tensor, y: Tensor) -> float:
    start = time.perf_counter()
    method.learn(x, y)
    return time.perf_counter() - start


def compare(name: str, data: Noise, repeats: int) -> dict[str, Any]:
    """Return the median seconds of a step, of ord-ft's, and their ratio."""
    torch.manual_seed(0)
    pair = [in_the_fifth_task(each, data) for each in ("ord-ft", name)]
    x, y = next(data.train())
    for _ in range(3):
        for method in pair:
            method.learn(x, y)
    times = [[seconds(method, x, y) for method in pair] for _ in range(repeats)]
    floor, own = (statistics.median(column) for column in zip(*times, strict=True))
    return {"seconds": own, "ord_ft_seconds": floor, "ratio": own / floor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("results/bench/methods.json"))
    parser.add_argument("methods", nargs="*", default=list(known_methods()))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data, found = Noise(), {}
    for name in args.methods:
        found[name] = compare(name, data, args.repeats)
        print(f"{name:12} {1e3 * found[name]['seconds']:7.2f} ms, {found[name]['ratio']:.2f} times ord-ft", flush=True)
    result = {
        "device": device_name(torch.device("cpu")),
        "versions": versions(torch.device("cpu")),
        "repeats": args.repeats,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**result, "methods": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
