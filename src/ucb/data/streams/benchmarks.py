"""Streams: the benchmarks that are known by name, and those built from data sets, your own in one line.

A share of every task's training data is held out for validation. Seed and place in the stream alone decide which, so it
is the same for all methods, and the first tasks of a long stream are those of a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ucb.checks import count, nearest
from ucb.data.streams.sources import Array, Source, image_source, load_mnist
from ucb.data.streams.tasks import DatasetExamples, Preparation, Scenario, Stream, Task, TensorExamples, blur_boundaries
from ucb.seeds import generator_for

VALIDATION = 0.15
T = TypeVar("T")


def split_by_classes(
    name: str,
    data: Source,
    groups: Sequence[Sequence[int]],
    *,
    seed: int = 0,
    validation: float = VALIDATION,
    scenario: Scenario | None = None,
) -> Stream:
    """Make a task of each group of labels; inside it they are numbered from 0 in the order given."""
    listed = [label for group in groups for label in group]
    if unknown := sorted(set(listed) - set(data.labels)):
        raise ValueError(f"{data.name} has no label {unknown[0]}; it has {', '.join(map(str, data.labels))}")
    if len(set(listed)) < len(listed):
        raise ValueError(f"a label is listed twice in {[list(group) for group in groups]}")
    for number, group in enumerate(groups, start=1):
        if not group:
            raise ValueError(f"group {number} has no labels")
    titles = ["/".join(data.classes[data.labels.index(label)] for label in group) for group in groups]
    parts = [(title, data, group) for title, group in zip(titles, groups, strict=True)]
    return Stream(name, _make_tasks(parts, seed, validation), scenario or Scenario())


def permute_pixels(
    name: str,
    data: Source,
    tasks: int,
    *,
    seed: int = 0,
    validation: float = VALIDATION,
    scenario: Scenario | None = None,
) -> Stream:
    """Make tasks that differ in the order of their pixels, each at random, the first too.

    All share one copy of the data, and what one holds out for validation no other trains on.
    """
    count("tasks", tasks)
    pixels = data.x_train.tensor[0].numel()
    (base,) = _make_tasks([("", data, data.labels)], seed, validation)
    orders = [torch.randperm(pixels, generator=_random(seed, "permutation", index)) for index in range(tasks)]
    made = [
        replace(base, name=f"permutation {index}", prepare=replace(data.prepare, permutation=order))
        for index, order in enumerate(orders, start=1)
    ]
    return Stream(name, tuple(made), scenario or Scenario())


def sequence(
    name: str,
    datasets: Sequence[Source],
    *,
    seed: int = 0,
    validation: float = VALIDATION,
    scenario: Scenario | None = None,
) -> Stream:
    """Make one task of each data set, in this order."""
    parts = [(data.name, data, data.labels) for data in datasets]
    return Stream(name, _make_tasks(parts, seed, validation), scenario or Scenario())


def from_arrays(
    name: str,
    tasks: Mapping[str, tuple[Array, Array, Array, Array]] | Sequence[tuple[Array, Array, Array, Array]],
    *,
    seed: int = 0,
    validation: float = VALIDATION,
    scenario: Scenario | None = None,
    prepare: Preparation | None = None,
) -> Stream:
    """Make a task of each (x_train, y_train, x_test, y_test), arrays or tensors; a mapping names them.

    - Inputs are ``[examples, ...]``, labels ``[examples]`` of whole numbers; every task may have labels of its own.
    - ``validation``: the share of the training examples that is held out; ``seed`` says which.
    - ``scenario``: what the learner is told; by default each task has a head and is known at test time.

    >>> import numpy as np, ucb
    >>> x, y = np.random.randn(100, 4).astype(np.float32), np.arange(100) % 3
    >>> stream = ucb.from_arrays("mine", {"first": (x, y, x, y), "second": (-x, y, -x, y)})
    >>> stream.head_sizes, len(stream.tasks[0].train), len(stream.tasks[0].validation)
    ((3, 3), 85, 15)
    """
    sources = []
    for title, parts in _named(tasks):
        if len(parts) != 4:
            raise ValueError(f"{title} must be (x_train, y_train, x_test, y_test), not {len(parts)} things")
        sources.append(Source(title, *parts, prepare=prepare))
    return sequence(name, sources, seed=seed, validation=validation, scenario=scenario)


def from_datasets(
    name: str,
    tasks: Mapping[str, tuple[Dataset[Any], Dataset[Any]]] | Sequence[tuple[Dataset[Any], Dataset[Any]]],
    *,
    seed: int = 0,
    validation: float = VALIDATION,
    scenario: Scenario | None = None,
    prepare: Preparation | None = None,
    workers: int = 0,
) -> Stream:
    """Make a task of each (train, test) pair of torch data sets of (x, label), read when needed; a mapping names them.

    As in torchvision, labels index the data set's ``classes`` where it has them; otherwise its ``targets`` say which
    labels there are, and where these are missing too, all of the training data is read once to find out.

    >>> import torch, ucb
    >>> data = torch.utils.data.TensorDataset(torch.randn(100, 4), torch.arange(100) % 3)
    >>> ucb.from_datasets("mine", [(data, data), (data, data)]).head_sizes
    (3, 3)
    """
    made = []
    for index, (title, parts) in enumerate(_named(tasks)):
        if len(parts) != 2:
            raise ValueError(f"{title} must be (train, test), not {len(parts)} things")
        whole, test = (DatasetExamples(part, workers=workers) for part in parts)
        classes = _classes(parts[0], len(whole))
        numbering = {label: number for number, label in enumerate(classes)}
        train, held_out = hold_out(len(whole), validation, _random(seed, "validation", index), title)
        examples = [DatasetExamples(parts[0], rows, numbering, workers) for rows in (train, held_out)]
        tested = DatasetExamples(parts[1], test.rows, numbering, workers)
        how = Preparation() if prepare is None else prepare
        made.append(Task(title, tuple(classes.values()), examples[0], examples[1], tested, how))
    return Stream(name, tuple(made), scenario or Scenario())


def _random(seed: int, purpose: str, index: int) -> torch.Generator:
    return generator_for(count("seed", seed, least=0), purpose, index)


def hold_out(size: int, share: float, random: torch.Generator, task: str) -> tuple[Tensor, Tensor]:
    """Return the indices to train on and those to validate on: apart, and together all."""
    if not 0 < share < 1:
        raise ValueError(f"validation must be a share between 0 and 1, not {share}")
    if size < 2:
        raise ValueError(f"the task {task!r} has {size} example for training: none can be held out for validation")
    held_out = min(max(1, round(size * share)), size - 1)
    order = torch.randperm(size, generator=random)
    return order[held_out:].sort().values, order[:held_out].sort().values


def _make_tasks(parts: Sequence[tuple[str, Source, Sequence[int]]], seed: int, validation: float) -> tuple[Task, ...]:
    """Make a task of each title, data set and some of its labels; its examples are rows of the data set's tensors."""
    tasks = []
    for index, (title, data, labels) in enumerate(parts):
        places = [data.labels.index(label) for label in labels]
        numbers = torch.full((len(data.labels),), -1)
        numbers[places] = torch.arange(len(labels))
        known = torch.tensor(data.labels)
        y_train, y_test = (numbers[torch.searchsorted(known, y)] for y in (data.y_train, data.y_test))
        rows, test = ((y >= 0).nonzero().squeeze(1) for y in (y_train, y_test))
        if len(test) == 0:
            raise ValueError(f"the task {title!r} has no example for testing")
        random = _random(seed, "validation", index)
        train, held_out = (rows[part] for part in hold_out(len(rows), validation, random, title))
        train_part, validation_part = (
            TensorExamples(data.x_train, y_train[part], part, len(labels)) for part in (train, held_out)
        )
        test_part = TensorExamples(data.x_test, y_test[test], test, len(labels))
        classes = tuple(data.classes[place] for place in places)
        tasks.append(Task(title, classes, train_part, validation_part, test_part, data.prepare))
    return tuple(tasks)


def _named(tasks: Mapping[str, T] | Sequence[T]) -> list[tuple[str, T]]:
    if isinstance(tasks, Mapping):
        return list(tasks.items())
    return [(f"task {number}", task) for number, task in enumerate(tasks, start=1)]


def _classes(dataset: Any, size: int) -> dict[int, str]:
    """Return the labels of a data set in ascending order, and what they are called."""
    names = getattr(dataset, "classes", None)
    if names is not None:
        return {label: str(name) for label, name in enumerate(names)}
    targets = getattr(dataset, "targets", None)
    labels = (dataset[item][1] for item in range(size)) if targets is None else targets
    return {label: str(label) for label in sorted({int(label) for label in labels})}


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
        groups = [("cifar10", range(first, first + 2)) for first in range(0, 10, 2)]
        groups += [("cifar100", range(first, first + 20)) for first in range(0, 100, 20)]
        parts = [(f"{data} {labels[0]}-{labels[-1]}", image_source(data), labels) for data, labels in groups]
        made = _make_tasks(parts, seed, validation=0.1)
        order = torch.randperm(len(made), generator=_random(seed, "order of tasks", 0)).tolist()
        return Stream(name, tuple(made[index] for index in order[:tasks]), scenario)

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
