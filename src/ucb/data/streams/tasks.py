"""Tasks, the stream they come in, and who may know which task it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from ucb.checks import nearest
from ucb.data.streams.examples import Examples, MixedExamples, Part, Preparation
from ucb.seeds import generator_for


@dataclass(frozen=True)
class Task:
    """One task: its classes, and its data with labels 0 .. number of classes - 1."""

    name: str
    classes: tuple[str, ...]
    train: Examples
    validation: Examples
    test: Examples
    prepare: Preparation = field(default_factory=Preparation)


@dataclass(frozen=True)
class Scenario:
    """What the learner has and what it is told.

    ``many`` heads: one for each task, and the task is known. ``one`` head: with outputs shared by all tasks, or one
    output for each class of each task. When ``task_known`` is False the learner is never given the task at test time.
    Without ``boundaries`` it is never told either when a task ends and the next begins: each passes by once, in its own
    order. `Scenario.named` makes the scenarios that the field has names for.
    """

    heads: Literal["many", "one"] = "many"
    task_known: bool = True
    shared_outputs: bool = False
    boundaries: bool = True

    def __post_init__(self) -> None:
        if not self.boundaries and (self.task_known or not self.shared_outputs):
            raise ValueError("without boundaries the task is hidden, and all tasks share their outputs")
        if self.heads == "many" and (not self.task_known or self.shared_outputs):
            raise ValueError("with several heads the task is known, and each has outputs of its own")

    @classmethod
    def named(cls, name: str) -> Scenario:
        """Return the task-incremental, domain-incremental, class-incremental or task-free scenario.

        >>> Scenario.named("class-incremental")
        Scenario(heads='one', task_known=False, shared_outputs=False, boundaries=True)
        """
        known = {
            "task-incremental": cls(),
            "domain-incremental": cls("one", task_known=False, shared_outputs=True),
            "class-incremental": cls("one", task_known=False),
            "task-free": cls("one", task_known=False, shared_outputs=True, boundaries=False),
        }
        if name not in known:
            raise ValueError(f"there is no scenario {name!r}: {nearest(name, known)}")
        return known[name]

    @property
    def name(self) -> str:
        """What the field calls it: by what the learner is told, and by what it must tell apart."""
        if not self.boundaries:
            return "task-free"
        if self.task_known:
            return "task-incremental"
        return "domain-incremental" if self.shared_outputs else "class-incremental"


@dataclass(frozen=True)
class Stream:
    """Tasks in the order they come, under one scenario."""

    name: str
    tasks: tuple[Task, ...]
    scenario: Scenario = Scenario()
    subsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Tasks over which ACC is reported too, by what they are called."""
    remarks: tuple[str, ...] = ()
    """Sentences for whoever gave the data, such as which images cannot be read."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("a stream needs at least one task")
        if self.scenario.shared_outputs and len({len(task.classes) for task in self.tasks}) > 1:
            raise ValueError("outputs can be shared only by tasks with the same number of classes")

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """The number of outputs of every head."""
        sizes = tuple(len(task.classes) for task in self.tasks)
        if self.scenario.heads == "many":
            return sizes
        return (max(sizes) if self.scenario.shared_outputs else sum(sizes),)

    def outputs_of(self, index: int) -> range:
        """Return which outputs of its head stand for the classes of task ``index``."""
        own = len(self.tasks[index].classes)
        apart = self.scenario.heads == "one" and not self.scenario.shared_outputs
        first = sum(len(task.classes) for task in self.tasks[:index]) if apart else 0
        return range(first, first + own)

    def joint(self, last: int) -> Task:
        """Return tasks 0 .. ``last`` as one. Its labels number the outputs of all heads, side by side."""
        tasks, firsts = self.tasks[: last + 1], [self._wide_start(index) for index in range(last + 1)]

        def mixed(examples: Iterable[Examples]) -> MixedExamples:
            return MixedExamples(
                [Part(e, task.prepare, first) for e, task, first in zip(examples, tasks, firsts, strict=True)]
            )

        return Task(
            f"tasks 1 to {last + 1}",
            tuple(name for task in tasks for name in task.classes),
            mixed(task.train for task in tasks),
            mixed(task.validation for task in tasks),
            mixed(task.test for task in tasks),
        )

    def _wide_start(self, index: int) -> int:
        several = self.scenario.heads == "many"
        return sum(self.head_sizes[:index]) if several else self.outputs_of(index).start


def blur_boundaries(stream: Stream, blur: float, seed: int = 0) -> Stream:
    """Return the stream as one long pass over all training data, cut into as many equal pieces as it has tasks.

    An example of task i comes at the time i + U + blur * (V - 1/2), with U and V uniform: around each boundary, over a
    time of ``blur`` tasks, one task fades out while the next fades in; 0 is a sudden change, and with 1 there is no
    moment at which a task is alone. Validation and test data stay those of the tasks.
    """
    if not 0 <= blur <= 1:
        raise ValueError(f"blur must be between 0 and 1, not {blur}")
    if not stream.scenario.shared_outputs:
        raise ValueError("tasks can fade into each other only where they share their outputs")
    random = generator_for(seed, "blur")
    times = []
    for index, task in enumerate(stream.tasks):
        u, v = torch.rand(2, len(task.train), generator=random, dtype=torch.float64)
        times.append(index + u + blur * (v - 0.5))
    order = torch.cat(times).argsort(stable=True)
    parts = [Part(task.train, task.prepare, 0) for task in stream.tasks]
    pieces = order.tensor_split(len(stream))
    tasks = []
    for task, piece in zip(stream.tasks, pieces, strict=True):
        validation, test = (MixedExamples([Part(own, task.prepare, 0)]) for own in (task.validation, task.test))
        tasks.append(Task(task.name, task.classes, MixedExamples(parts, piece), validation, test))
    scenario = Scenario("one", task_known=False, shared_outputs=True, boundaries=False)
    return Stream(f"{stream.name}, blur {blur:g}", tuple(tasks), scenario)
