"""Whole runs on a GPU: how long one takes, what seeds side by side save, and whether cost grows with the tasks learnt.

    python benchmarks/gpu_runs.py [--repeats 3] [--parts seeds precision tasks] [-o results/bench/runs-gpu.json]

A short run of each kind warms up (kernels are compiled, data goes to the GPU) and does not count. The precisions are
compared by what three seeds of UCB with whole weight samples know at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import torch

from ucb.data.streams import TensorExamples, benchmark
from ucb.engine import Epoch, Job, Observer, Run, Schedule, Training
from ucb.engine.config import recipe_for
from ucb.engine.result import TaskMetrics, device_name, versions
from ucb.engine.runner import run_side_by_side
from ucb.engine.training import Precision
from ucb.methods import known_methods
from ucb.nets import mlp
from ucb.seeds import generator_for

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "weights": ("ucb", {"estimator": "weights", "prior_samples": 10}),
    "local": ("ucb", {"estimator": "local"}),
    "ord-ft": ("ord-ft", {}),
}


PARTS = ["seeds", "precision", "tasks"]


def run_of(
    kind: str, seed: int, device: str, epochs: int, tasks: int | None = None, precision: Precision = "tf32"
) -> Run:
    method, extra = KINDS[kind]
    settings = recipe_for("mnist-5split", method).settings | extra
    training = {"epochs": epochs, "precision": precision}
    return Job("mnist-5split", method, seed, tasks, training=training, settings=settings, device=device).run()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that work takes; runs end by reading their figures, so a GPU is done then."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def seeds(kind: str, device: str, epochs: int, repeats: int, tasks: int | None) -> dict[str, Any]:
    """Time three seeds in a row and side by side, taking turns."""
    in_a_row, together, alone, apart = [], [], [], 0.0
    run_of(kind, 0, device, 1, 2).learn()
    run_side_by_side([run_of(kind, seed, device, 1, 2) for seed in range(3)], Run.learn)
    for _ in range(repeats):
        first = [run_of(kind, seed, device, epochs, tasks) for seed in range(3)]
        took = [timed(run.learn) for run in first]
        second = [run_of(kind, seed, device, epochs, tasks) for seed in range(3)]
        at_once = timed(lambda runs=second: run_side_by_side(runs, Run.learn))  # type: ignore[misc]
        for one, other in zip(first, second, strict=True):
            apart = max(apart, abs(one.matrix.acc - other.matrix.acc))
        alone += took
        in_a_row.append(sum(took))
        together.append(at_once)
    ratio = statistics.median(together) / statistics.median(in_a_row)
    print(f"{kind:8} one run {statistics.median(alone):.2f} s, three side by side / in a row {ratio:.2f}", flush=True)
    print(f"{'':8} the ACC of a seed differs by {apart:.3f} at most", flush=True)
    return {"one": alone, "in a row": in_a_row, "side by side": together, "ratio": ratio, "ACC differs by": apart}


def precisions(device: str, epochs: int, tasks: int | None) -> dict[str, Any]:
    """Return ACC and BWT of three seeds under each precision."""
    found: dict[str, Any] = {}
    for precision in get_args(Precision):
        runs = [run_of("weights", seed, device, epochs, tasks, precision) for seed in range(3)]
        seconds = timed(lambda runs=runs: run_side_by_side(runs, Run.learn))  # type: ignore[misc]
        accs, bwts = [run.matrix.acc for run in runs], [run.matrix.bwt for run in runs]
        found[precision] = {"acc": accs, "bwt": bwts, "seconds side by side": seconds}
        print(f"{precision:8} ACC {statistics.mean(accs):.3f}, BWT {statistics.mean(bwts):.3f}, {seconds:.1f} s")
    return found


class Memory(Observer):
    """Notes after every epoch the most memory that was in use in it, and all that is held."""

    def __init__(self) -> None:
        self.in_use: list[int] = []
        self.held: list[int] = []

    def epoch_ended(self, epoch: Epoch) -> None:
        """Note both."""
        if torch.cuda.is_available():
            self.in_use.append(torch.cuda.max_memory_allocated())
            self.held.append(torch.cuda.memory_reserved())
            torch.cuda.reset_peak_memory_stats()


class LongRun(Run):
    """UCB on many permuted tasks. It knows what each takes but for evaluation, which must grow, and is kept small."""

    def __init__(self, tasks: int, device: torch.device, epochs: int) -> None:
        stream = benchmark("mnist-permuted", 0, tasks=tasks)
        few = TensorExamples(torch.zeros(8, 1, 28, 28, dtype=torch.uint8), torch.arange(8))
        stream = dataclasses.replace(stream, tasks=tuple(dataclasses.replace(t, test=few) for t in stream.tasks))
        torch.manual_seed(0)
        kind = known_methods()["ucb"]
        net = mlp((1, 28, 28), stream.head_sizes).to(device)
        method = kind(net, kind.settings_type(), generator_for(device=device))
        training = Training(Schedule(epochs=epochs), eval_samples=1)
        self.memory, self.judging = Memory(), Counter[int]()
        super().__init__(stream, method, training, seed=0, device=device, observer=self.memory)

    def _evaluate(self, index: int) -> TaskMetrics:
        start = time.perf_counter()
        metrics = super()._evaluate(index)
        self.judging[self.progress.task] += time.perf_counter() - start
        return metrics

    @property
    def seconds(self) -> list[float]:
        """What each task has taken."""
        return [took - self.judging[task] for task, took in enumerate(self.progress.task_seconds)]


def many_tasks(tasks: int, device: torch.device, epochs: int, turns: int, repeats: int) -> dict[str, Any]:
    """Learn many tasks; then let a young run and an old one take turns: whatever slows the machine slows both."""
    whole = LongRun(tasks, device, epochs)
    whole.learn()
    in_use, held = whole.memory.in_use, whole.memory.held
    print(f"{tasks} tasks: {statistics.median(whole.seconds[1:]):.3f} s each", flush=True)
    if in_use:
        second = 2 * epochs - 1  # the first task has no rates yet
        print(
            f"memory in use {in_use[-1] / in_use[second] - 1:+.1%}, held {held[-1] / held[second] - 1:+.1%}", flush=True
        )
    compared = []
    for _ in range(repeats):
        young, old = LongRun(tasks, device, epochs), LongRun(tasks, device, epochs)
        young.learn_task()
        while old.progress.task < tasks - turns:
            old.learn_task()
        for _ in range(turns):
            young.learn_task()
            old.learn_task()
        early, late = young.seconds[1:], old.seconds[-turns:]
        ratio = statistics.median(b / a for a, b in zip(early, late, strict=True))
        compared.append({"early": early, "late": late, "late / early": ratio})
        print(f"in turns: {statistics.median(early):.3f} s early, {statistics.median(late):.3f} s late, {ratio:.3f}")
    return {"seconds": whole.seconds, "in use": in_use, "held": held, "in turns": compared}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--split-tasks", type=int, help="only so many tasks of 5-Split MNIST")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--task-epochs", type=int, default=3)
    parser.add_argument(
        "--turns", type=int, default=20, help="tasks of a young run that are compared with an old one's"
    )
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="what is measured; the rest is kept")
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    if args.tasks <= args.turns:
        parser.error(f"a young run of {args.turns} tasks after its first needs more than {args.tasks} tasks")
    where = torch.device(args.device)
    found: dict[str, Any] = json.loads(args.out.read_text()) if args.out and args.out.is_file() else {}
    found |= {"device": device_name(where), "versions": versions(where), "epochs": args.epochs}
    if "seeds" in args.parts:
        found["5-Split MNIST"] = {
            kind: seeds(kind, args.device, args.epochs, args.repeats, args.split_tasks) for kind in args.kinds
        }
    if "precision" in args.parts:
        found["precision"] = precisions(args.device, args.epochs, args.split_tasks)
    if "tasks" in args.parts:
        found["many tasks"] = many_tasks(args.tasks, where, args.task_epochs, args.turns, args.repeats)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
