"""The benchmarks that are known by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ucb.bayes.checks import nearest
from ucb.stream.blurred import blurred
from ucb.stream.builders import permuted, split_by_classes
from ucb.stream.mnist import load_mnist
from ucb.stream.preparation import Preparation
from ucb.stream.source import Source
from ucb.stream.task import Scenario, Stream

DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


@dataclass(frozen=True)
class Benchmark:
    """A stream that the paper reports on, before its length, seed and scenario are chosen.

    ``build(seed, tasks, scenario)`` makes it. ``most_tasks`` is None where any number can be had. ``shared_outputs``
    says whether the tasks share outputs when there is one head.
    """

    name: str
    about: str
    tasks: int
    most_tasks: int | None
    shared_outputs: bool
    build: Callable[[int, int, Scenario], Stream]


def benchmark(
    name: str,
    seed: int = 0,
    tasks: int | None = None,
    single_head: bool = False,
    shared_outputs: bool | None = None,
    blur: float | None = None,
) -> Stream:
    """Return the first ``tasks`` tasks of a benchmark (all, if None).

    They have a head each, and the task is known; or, with ``single_head``, one head, and the task is hidden. The
    outputs of that head are then shared by the tasks (``mnist-permuted``: 10) or one for each class of each task (100);
    None is the benchmark's own choice. With ``blur`` (0 to 1) they fade into each other, share their outputs, and no
    boundary is told.
    """
    known = find(name)
    tasks = known.tasks if tasks is None else tasks
    if tasks < 1 or tasks > (known.most_tasks or tasks):
        allowed = "at least 1" if known.most_tasks is None else f"between 1 and {known.most_tasks}"
        raise ValueError(f"tasks must be {allowed} for {name}, not {tasks}")
    if shared_outputs is not None and not single_head:
        raise ValueError("outputs can be shared or apart only with a single head")
    if blur is not None:
        shared = Scenario("one", task_known=False, shared_outputs=True)
        return blurred(known.build(seed, tasks, shared), blur, seed)
    shared_outputs = known.shared_outputs if shared_outputs is None else shared_outputs
    scenario = Scenario("one", task_known=False, shared_outputs=shared_outputs) if single_head else Scenario()
    return known.build(seed, tasks, scenario)


def find(name: str) -> Benchmark:
    """Return the benchmark of that name; for a wrong one the nearest right ones are offered."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    raise ValueError(f"there is no benchmark {name!r}: {nearest(name, BENCHMARKS)}")


@cache
def _mnist() -> Source:
    """Return the digits as one source, so that all streams of a process share one copy on a device."""
    return Source("MNIST", *load_mnist(), prepare=Preparation(mean=(0.1307,), std=(0.3081,)), classes=DIGITS)


def _mnist_split(name: str, each: int) -> Benchmark:
    """Return the benchmark of ``each`` digits a task, in ascending order."""
    groups = [range(first, first + each) for first in range(0, 10, each)]

    def build(seed: int, tasks: int, scenario: Scenario) -> Stream:
        return split_by_classes(name, _mnist(), groups[:tasks], seed=seed, scenario=scenario)

    about = f"MNIST's digits, {each} a task: " + ", ".join(f"{group[0]}-{group[-1]}" for group in groups)
    return Benchmark(name, about, len(groups), len(groups), shared_outputs=False, build=build)


def _mnist_permuted(name: str) -> Benchmark:
    def build(seed: int, tasks: int, scenario: Scenario) -> Stream:
        return permuted(name, _mnist(), tasks, seed=seed, scenario=scenario)

    about = "all of MNIST in every task, its pixels in another random order each time"
    return Benchmark(name, about, 10, None, shared_outputs=True, build=build)


BENCHMARKS = {
    each.name: each
    for each in (
        _mnist_split("mnist-2split", each=5),
        _mnist_split("mnist-5split", each=2),
        _mnist_permuted("mnist-permuted"),
    )
}
