"""Labelled examples, tasks made of them, the stream they come in, and who may know which task it is."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ucb.checks import count, nearest
from ucb.seeds import generator_for


class Examples(ABC):
    """Some labelled examples, served by ``batches`` in an order that the caller decides, so that runs can repeat it."""

    is_fixed = False
    """Whether they are in memory, the same whenever they are asked for: then a GPU may keep them ready."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    def num_batches(self, batch_size: int) -> int:
        """Return how many batches they make."""
        return math.ceil(len(self) / batch_size)

    @abstractmethod
    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) on ``device`` for the examples whose indices ``order`` lists."""

    def in_order(self, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) on ``device`` for all examples, as they are numbered."""
        return self.batches(torch.arange(len(self)), batch_size, device)

    def first(self) -> Tensor:
        """Return the x of the first example, as a batch of one in this machine's memory."""
        x, _ = next(self.batches(torch.arange(1), 1, torch.device("cpu")))
        return x

    @cached_property
    def numbers_each(self) -> int:
        """How many numbers the x of one example is made of."""
        return self.first().numel()


class Resident:
    """A tensor that goes to each device once and stays there, for as many tasks as share it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._copies: dict[torch.device, Tensor] = {}

    def __len__(self) -> int:
        return len(self.tensor)

    def on(self, device: torch.device) -> Tensor:
        """Return the copy on ``device``; on its own device that is the tensor itself."""
        if device.type == "cuda" and device.index is None:  # it means the current one, say "cuda:0"
            device = torch.device("cuda", torch.cuda.current_device())
        if device not in self._copies:
            self._copies[device] = self.tensor.to(device)
        return self._copies[device]


class TensorExamples(Examples):
    """Examples in memory: ``x`` of uint8 or floating point, ``y`` of int64.

    With ``rows``, example i is row ``rows[i]`` of ``x`` with label ``y[i]``; ``x`` itself is not copied, and a
    ``Resident`` one is shared between all who hold it. ``classes`` says how many there are: labels must stay below it.
    """

    is_fixed = True

    def __init__(self, x: Tensor | Resident, y: Tensor, rows: Tensor | None = None, classes: int | None = None) -> None:
        self.x = x if isinstance(x, Resident) else Resident(x)
        if not (self.x.tensor.dtype == torch.uint8 or self.x.tensor.is_floating_point()):
            raise TypeError(f"x must be of uint8 or floating point, not {self.x.tensor.dtype}")
        if y.dtype != torch.int64:
            raise TypeError(f"labels must be of int64, not {y.dtype}")
        size = len(self.x) if rows is None else len(rows)
        if y.shape != (size,):
            raise ValueError(f"{size} examples need as many labels in one dimension, not labels of {tuple(y.shape)}")
        if size == 0:
            raise ValueError("there are no examples")
        if rows is not None:
            check_indices("rows", rows, len(self.x))
        if int(y.min()) < 0 or (classes is not None and int(y.max()) >= classes):
            allowed = "0 or above" if classes is None else f"between 0 and {classes - 1}"
            raise ValueError(f"labels must be {allowed}, not {int(y.min())} to {int(y.max())}")
        self.y = Resident(y)
        self.rows = None if rows is None else Resident(rows)

    def __len__(self) -> int:
        return len(self.y)

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y), gathered on ``device`` from what is already there."""
        check_indices("order", order, len(self))
        count("batch_size", batch_size)
        return self._serve(order.to(device), batch_size, device)

    def in_order(self, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) for all examples: no order has to be checked, and none goes to the device."""
        count("batch_size", batch_size)
        return self._serve(None, batch_size, device)

    def _serve(self, order: Tensor | None, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.x.on(device), self.y.on(device)
        rows = torch.arange(len(self), device=device) if self.rows is None else self.rows.on(device)
        if order is not None:
            rows, y = rows[order], y[order]
        for some, labels in zip(rows.split(batch_size), y.split(batch_size), strict=True):
            if len(some):  # an empty tensor splits into one empty piece
                yield x.index_select(0, some), labels.clone()

    @cached_property
    def numbers_each(self) -> int:
        """How many numbers the x of one example is made of; none is fetched for it."""
        return self.x.tensor.numel() // len(self.x)


class DatasetExamples(Examples):
    """Examples of a torch ``Dataset`` of (x, label) pairs, read when they are needed: for what does not fit in memory.

    Example i is item ``rows[i]``, or item i. ``numbering`` says which number stands for each label; a label that it
    does not name is an error when it is met. ``workers`` processes read ahead; 0 reads in this one.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        rows: Tensor | None = None,
        numbering: Mapping[int, int] | None = None,
        workers: int = 0,
    ) -> None:
        if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
            raise TypeError(f"a data set must have a length and items to index, and {type(dataset).__name__} has not")
        if len(dataset) == 0 or (rows is not None and len(rows) == 0):
            raise ValueError("there are no examples")
        self.dataset: Dataset[Any] = dataset
        self.rows = torch.arange(len(dataset)) if rows is None else check_indices("rows", rows, len(dataset))
        self.numbering = numbering
        self.workers = count("workers", workers, least=0)

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) as a DataLoader reads and collates them."""
        check_indices("order", order, len(self))
        count("batch_size", batch_size)
        items = self.rows[order.cpu()]
        loader: DataLoader[Any] = DataLoader(
            self.dataset,
            batch_size=batch_size,
            sampler=items.tolist(),
            num_workers=self.workers,
            pin_memory=device.type == "cuda",
            generator=_seed_with(items),
        )
        return self._read(loader, device)

    def _read(self, loader: DataLoader[Any], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        for x, labels in loader:
            y = number_labels(torch.as_tensor(labels), self.numbering)
            yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)


def number_labels(labels: Tensor, numbering: Mapping[int, int] | None) -> Tensor:
    """Return the numbers that stand for labels; without a numbering each stands for itself."""
    if labels.is_floating_point() or labels.dim() != 1:
        raise TypeError(
            f"a label must be one whole number, but a batch of them has {labels.dtype} of {tuple(labels.shape)}"
        )
    if numbering is None:
        if int(labels.min()) < 0:
            raise ValueError(f"labels must be 0 or above, not {int(labels.min())}")
        return labels.long()
    try:
        return torch.tensor([numbering[label] for label in labels.tolist()])
    except KeyError as unknown:
        known = ", ".join(str(label) for label in sorted(numbering))
        raise ValueError(f"the label {unknown} is not one of this task's: {known}") from None


@dataclass(frozen=True)
class Preparation:
    """How stored pixels become a net's input, on whatever device they are: (x / 255 - mean) / std, then a permutation.

    ``mean`` and ``std`` hold one number, or one for each channel. ``permutation`` reorders the flattened pixels.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    permutation: Tensor | None = None
    _constants: dict[torch.device, tuple[Tensor, Tensor, Tensor | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, x: Tensor) -> Tensor:
        """Return float inputs; floating-point data is taken as it is, but for the permutation."""
        mean, std, permutation = self._on(x.device)
        if not x.is_floating_point():
            shape = (-1, *[1] * (x.dim() - 2))
            x = (x.float() / 255 - mean.view(shape)) / std.view(shape)
        if permutation is not None:
            x = x.flatten(1)[:, permutation].view_as(x)
        if x.is_cuda and x.dim() == 4 and x.shape[1] > 1:
            return x.contiguous(memory_format=torch.channels_last)  # as a GPU convolves fastest
        return x

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return mean, std and permutation on ``device``; they go there once: a copy a batch would hold up a GPU."""
        if device not in self._constants:
            mean, std = (torch.tensor(numbers, device=device) for numbers in (self.mean, self.std))
            permutation = None if self.permutation is None else self.permutation.to(device)
            self._constants[device] = mean, std, permutation
        return self._constants[device]


class Part(NamedTuple):
    """One task's examples, how its pixels become inputs, and where its outputs begin."""

    examples: Examples
    prepare: Preparation
    first_output: int


class MixedExamples(Examples):
    """Several tasks' examples as one, for joint training and for streams whose tasks fade into each other.

    They are numbered one part after the other, and served as inputs that are ready for the net. With
    ``rows``, example i is number ``rows[i]`` of these.
    """

    def __init__(self, parts: Sequence[Part], rows: Tensor | None = None) -> None:
        self.parts = tuple(parts)
        self.is_fixed = all(part.examples.is_fixed for part in parts)
        self.ends = torch.tensor([len(part.examples) for part in parts]).cumsum(0)
        whole = int(self.ends[-1])
        self.rows = torch.arange(whole) if rows is None else check_indices("rows", rows, whole)

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y); each batch is gathered part by part and put in the order asked for."""
        check_indices("order", order, len(self))
        count("batch_size", batch_size)
        return (self._batch(rows, device) for rows in self.rows[order.cpu()].split(batch_size) if len(rows))

    def _batch(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        owner = torch.bucketize(rows, self.ends, right=True)
        xs, ys, places = [], [], []
        for index in owner.unique().tolist():
            part, place = self.parts[index], (owner == index).nonzero().squeeze(1)
            own = rows[place] - (self.ends[index] - len(part.examples))
            for x, y in part.examples.batches(own, len(own), device):
                xs.append(part.prepare(x))
                ys.append(y + part.first_output)
            places.append(place)
        back = torch.cat(places).argsort().to(device)
        return torch.cat(xs)[back], torch.cat(ys)[back]


def check_indices(name: str, indices: Tensor, size: int) -> Tensor:
    """Return ``indices`` if they are a list of whole numbers from 0 to ``size`` - 1."""
    if indices.dtype != torch.int64 or indices.dim() != 1:
        raise TypeError(f"{name} must be int64 in one dimension, not {indices.dtype} of {tuple(indices.shape)}")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise ValueError(f"{name} must lie between 0 and {size - 1}, not {int(indices.min())} to {int(indices.max())}")
    return indices


def _seed_with(items: Tensor) -> torch.Generator:
    """Return a generator for a loader's workers that depends on the order alone, and spares PyTorch's global one."""
    digest = hashlib.sha256(items.numpy().tobytes()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))


@dataclass(frozen=True)
class Task:
    """One task: its classes, and its data with labels 0 .. number of classes - 1."""

    name: str
    classes: tuple[str, ...]
    train: Examples
    validation: Examples
    test: Examples
    prepare: Preparation = field(default_factory=Preparation)
    labels: tuple[int, ...] = ()
    """What the data call each class, where a program hands the task over."""


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
    is_open: bool = False
    """Whether more tasks may come."""

    def __post_init__(self) -> None:
        if not self.tasks and not self.is_open:
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
        tasks = self.tasks[: last + 1]
        many = self.scenario.heads == "many"
        firsts = [sum(self.head_sizes[:i]) if many else self.outputs_of(i).start for i in range(last + 1)]

        def mix(kind: Literal["train", "validation", "test"]) -> MixedExamples:
            own = zip(tasks, firsts, strict=True)
            return MixedExamples([Part(getattr(task, kind), task.prepare, first) for task, first in own])

        classes = tuple(name for task in tasks for name in task.classes)
        return Task(f"tasks 1 to {last + 1}", classes, mix("train"), mix("validation"), mix("test"))


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
