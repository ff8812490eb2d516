"""The benchmarks that are known by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from ucb.checks import nearest
from ucb.data.streams.builders import permute_pixels, sequence, shuffle_groups, split_by_classes
from ucb.data.streams.examples import Preparation
from ucb.data.streams.sources import Source, image_source, load_mnist
from ucb.data.streams.tasks import Scenario, Stream, blur_boundaries


@dataclass(frozen=True)
class Benchmark:
    """A stream that the paper reports on, before its length, seed and scenario are chosen.

    ``build(seed, tasks, scenario, faces)`` makes it. ``most_tasks`` is None where any number can be had.
    ``shared_outputs`` says whether the tasks share outputs when there is one head, ``net`` which net it is learnt with
    and ``faces`` which data sets of faces it can have, where it has one.
    """

    name: str
    about: str
    tasks: int
    most_tasks: int | None
    shared_outputs: bool
    build: Callable[[int, int, Scenario, str], Stream]
    net: str = "mlp"
    faces: tuple[str, ...] = ()


def benchmark(
    name: str,
    seed: int = 0,
    tasks: int | None = None,
    single_head: bool = False,
    shared_outputs: bool | None = None,
    blur: float | None = None,
    faces: str | None = None,
    task_told: bool = False,
) -> Stream:
    """Return the first ``tasks`` tasks of a benchmark (all, if None).

    They have a head each, and the task is known; or, with ``single_head``, one head, and the task is hidden unless it
    is ``task_told``. The outputs of that head are shared by the tasks (``mnist-permuted``: 10) or one for each class of
    each task (100); None is the benchmark's own choice. With ``blur`` (0 to 1) they fade into each other, share their
    outputs, and no boundary is told. ``faces`` names the data set of faces of ``eight-datasets``.

    >>> import ucb
    >>> stream = ucb.benchmark("mnist-5split", seed=0, tasks=2)
    >>> [task.name for task in stream.tasks], stream.head_sizes
    (['0/1', '2/3'], (2, 2))
    """
    known = find(name)
    if faces is not None and faces not in known.faces:
        allowed = f"one of {', '.join(known.faces)}" if known.faces else "left out: it has no data set of faces"
        raise ValueError(f"faces must be {allowed} for {name}, not {faces!r}")
    faces = faces or (known.faces[0] if known.faces else "")
    tasks = known.tasks if tasks is None else tasks
    if tasks < 1 or tasks > (known.most_tasks or tasks):
        allowed = "at least 1" if known.most_tasks is None else f"between 1 and {known.most_tasks}"
        raise ValueError(f"tasks must be {allowed} for {name}, not {tasks}")
    if shared_outputs is not None and not single_head:
        raise ValueError("outputs can be shared or apart only with a single head")
    if task_told and not single_head:
        raise ValueError("the task can be told or hidden only with a single head: with several it is known")
    if blur is not None:
        if task_told or shared_outputs is False:
            raise ValueError("tasks that fade into each other share their outputs, and are never told")
        shared = Scenario("one", task_known=False, shared_outputs=True)
        return blur_boundaries(known.build(seed, tasks, shared, faces), blur, seed)
    shared_outputs = known.shared_outputs if shared_outputs is None else shared_outputs
    scenario = Scenario("one", task_told, shared_outputs) if single_head else Scenario()
    return known.build(seed, tasks, scenario, faces)


def find(name: str) -> Benchmark:
    """Return the benchmark of that name; for a wrong one the nearest right ones are offered."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    raise ValueError(f"there is no benchmark {name!r}: {nearest(name, BENCHMARKS)}")


@cache
def _mnist() -> Source:
    """Return the digits as one source, so that all streams of a process share one copy on a device."""
    return Source("MNIST", *load_mnist(), prepare=Preparation(mean=(0.1307,), std=(0.3081,)))


def _mnist_split(name: str, each: int) -> Benchmark:
    """Return the benchmark of ``each`` digits a task, in ascending order."""
    groups = [range(first, first + each) for first in range(0, 10, each)]

    def build(seed: int, tasks: int, scenario: Scenario, _faces: str) -> Stream:
        return split_by_classes(name, _mnist(), groups[:tasks], seed=seed, scenario=scenario)

    about = f"MNIST's digits, {each} a task: " + ", ".join(f"{group[0]}-{group[-1]}" for group in groups)
    return Benchmark(name, about, len(groups), len(groups), shared_outputs=False, build=build)


def _mnist_permuted(name: str) -> Benchmark:
    def build(seed: int, tasks: int, scenario: Scenario, _faces: str) -> Stream:
        return permute_pixels(name, _mnist(), tasks, seed=seed, scenario=scenario)

    about = "all of MNIST in every task, its pixels in another random order each time"
    return Benchmark(name, about, 10, None, shared_outputs=True, build=build)


def _cifar_alternating(name: str) -> Benchmark:
    def build(seed: int, tasks: int, scenario: Scenario, _faces: str) -> Stream:
        ten, hundred = image_source("cifar10"), image_source("cifar100")
        groups = [(ten, range(first, first + 2)) for first in range(0, 10, 2)]
        groups += [(hundred, range(first, first + 20)) for first in range(0, 100, 20)]
        return shuffle_groups(name, groups, tasks, seed=seed, validation=0.1, scenario=scenario)

    about = "five tasks of CIFAR10 (2 classes each) and five of CIFAR100 (20 each), their order mixed by seed"
    return Benchmark(name, about, 10, 10, shared_outputs=False, build=build, net="alexnet")


def _eight_datasets(name: str) -> Benchmark:
    rest = ("mnist", "cifar100", "notmnist", "svhn", "cifar10", "traffic_signs", "fashion_mnist")

    def build(seed: int, tasks: int, scenario: Scenario, faces: str) -> Stream:
        sources = [image_source(each) for each in (faces, *rest)[:tasks]]
        stream = sequence(name, sources, seed=seed, scenario=scenario)
        without = tuple(range(1, tasks))
        return replace(stream, subsets={"without faces": without} if without else {})

    about = "faces, " + ", ".join(rest) + ": a task each, 293 classes"
    faces = ("facescrub100", "lfw100")
    return Benchmark(name, about, 8, 8, shared_outputs=False, build=build, net="alexnet", faces=faces)


BENCHMARKS = {
    each.name: each
    for each in (
        _mnist_split("mnist-2split", each=5),
        _mnist_split("mnist-5split", each=2),
        _mnist_permuted("mnist-permuted"),
        _cifar_alternating("cifar-alternating"),
        _eight_datasets("eight-datasets"),
    )
}
