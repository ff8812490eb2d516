"""What an epoch through the engine costs beside its bare training steps: CIFAR10, AlexNet, batches of 64.

The bare loop calls the method's step on the same batches, prepared before and kept on the device. The two take turns,
and the ratio is that of their medians: 1.1 is the bar. On a GPU the engine replays its steps as CUDA graphs; there it
takes a third turn without them, as the bare loop does its steps. A CPU is timed by the time that the process has it.

    python benchmarks/loader.py [--device cuda] [--examples N] [--epochs 5] [--method ord-ft] [--random] [-o FILE.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucb.data.streams import Stream, Task
from ucb.data.streams.sources import CIFAR, Source, image_source
from ucb.data.streams.tasks import TensorExamples
from ucb.engine import Learner, Run, Training
from ucb.engine.result import device_name, versions
from ucb.engine.training import set_precision, steps_for
from ucb.experiments.bench.timing import describe_machine
from ucb.nets import alexnet
from ucb.seeds import derive_seed, generator_for

BATCH, BAR = 64, 1.1
EXAMPLES = {"cpu": 6_400, "cuda": 50_000}
CLASSES = 10


def cifar10_or_noise(random: bool, examples: int) -> Source:
    """Return CIFAR10, or pixels and labels at random in its form."""
    if not random:
        return image_source("cifar10")
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (examples, 3, 32, 32), dtype=torch.uint8, generator=generator)
    y = torch.arange(examples) % CLASSES
    return Source("random", x, y, x[:CLASSES], y[:CLASSES], CIFAR)


def one_task(source: Source, examples: int) -> Stream:
    """Return a stream of one task with so many training examples; nobody looks at the others."""
    if examples > len(source.x_train):
        raise SystemExit(f"{source.name} has {len(source.x_train)} examples, not {examples}")
    rows = torch.arange(examples)
    train = TensorExamples(source.x_train, source.y_train[rows], rows, CLASSES)
    few = TensorExamples(source.x_test, source.y_test[:CLASSES], torch.arange(CLASSES), CLASSES)
    return Stream(source.name, (Task(source.name, source.classes, train, few, few, source.prepare),))


def begun(stream: Stream, method: str, device: str, graphs: bool) -> Run:
    """Return a run whose task has begun."""
    torch.manual_seed(derive_seed("weights", 0))
    net = alexnet((3, 32, 32), stream.head_sizes)
    run = Learner(net, stream, method, device=device, training=Training(batch_size=BATCH, graphs=graphs)).run
    run._begin(run._data_of(0))
    return run


def through_the_engine(run: Run) -> Callable[[], None]:
    """Return what learns one epoch as the engine does; evaluation is no part of it."""
    data = run._data_of(0)
    steps = steps_for(run.method, data, run.graphs)

    def epoch() -> None:
        run.progress.batch, run.progress.losses = 0, []
        run._learn_epoch(data, steps)
        run.progress.epoch += 1

    return epoch


def bare(run: Run) -> Callable[[], None]:
    """Return what learns the batches of the first epoch, which are ready on the device."""
    batches = ready(run)

    def epoch() -> None:
        for x, y in batches:
            run.method.learn(x, y)

    return epoch


def ready(run: Run) -> list[tuple[Tensor, Tensor]]:
    """Return the first epoch's batches as a method sees them."""
    task = run.stream.tasks[0]
    order = torch.randperm(len(task.train), generator=generator_for("order", run.seed, 0, 0))
    return [(task.prepare(x), y) for x, y in task.train.batches(order, BATCH, run.device)]


def timed(run: Run, epoch: Callable[[], None]) -> float:
    """Return the seconds of an epoch, on the stream and in the precision of the run."""
    clock = time.perf_counter if run.device.type == "cuda" else time.process_time
    with run._on_stream(), set_precision(run.training.precision, run.device):
        _wait_for(run.device)
        start = clock()
        epoch()
        _wait_for(run.device)
        return clock() - start


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(stream: Stream, method: str, device: str, epochs: int) -> dict[str, list[float]]:
    """Return the seconds of every epoch; a first one of each, which warms up, does not count."""
    runs = {"engine": begun(stream, method, device, graphs=True), "bare": begun(stream, method, device, graphs=False)}
    if device != "cpu":
        runs["engine without graphs"] = begun(stream, method, device, graphs=False)
    ways = {name: (bare if name == "bare" else through_the_engine)(run) for name, run in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(epochs + 1):
        for name, epoch in ways.items():
            taken = timed(runs[name], epoch)
            if turn > 0:
                seconds[name].append(taken)
    return seconds


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--examples", type=int, help="6,400 on a CPU, 50,000 on a GPU if left out")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--method", default="ord-ft")
    parser.add_argument("--random", action="store_true", help="random images of that size instead of CIFAR10")
    parser.add_argument("-o", "--out", type=Path, help="write the figures here as JSON")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    examples = args.examples or EXAMPLES[args.device]
    stream = one_task(cifar10_or_noise(args.random, examples), examples)
    seconds = measure(stream, args.method, args.device, args.epochs)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result: dict[str, Any] = {
        "data": stream.name,
        "examples": examples,
        "batch": BATCH,
        "net": "alexnet",
        "method": args.method,
        "device": device_name(torch.device(args.device)),
        "machine": describe_machine(),
        "versions": versions(torch.device(args.device)),
        "seconds": seconds,
        "ratio": {name: median / medians["bare"] for name, median in medians.items() if name != "bare"},
        "bar": BAR,
    }
    for name, median in medians.items():
        print(f"{name:22} {median:8.3f} s an epoch, {median / medians['bare']:.3f} times bare")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
