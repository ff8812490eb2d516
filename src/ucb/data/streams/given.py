"""A task from what a program hands over: arrays, torch data sets, DataLoaders, or anything that yields batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from ucb.data.streams.benchmarks import VALIDATION, hold_out
from ucb.data.streams.loaders import ArrayDataset, AsGiven, LoaderExamples, MissingExamples, SplitBatch, split_batch
from ucb.data.streams.sources import check_inputs, check_labels
from ucb.data.streams.tasks import Examples, Preparation, Task, TensorExamples, number_labels
from ucb.seeds import generator_for

Given = Any
"""Arrays ``(x, y)``, a torch ``Dataset``, a ``DataLoader``, or another iterable of batches."""
Classes = SupportsIndex | Iterable[SupportsIndex] | None
"""How many classes there are, which labels they have, or that nobody says."""


@dataclass(frozen=True)
class Handover:
    """How what is handed over becomes a task's data.

    ``index`` is the task's place, which with the ``seed`` decides what is held out; ``outputs_for`` says how many
    outputs targets need that are no classes.
    """

    name: str
    index: int
    batch_size: int
    seed: int = 0
    split: SplitBatch = split_batch
    outputs_for: Callable[[Tensor], int] | None = None

    def make_task(self, train: Given, validation: Given, test: Given, classes: Classes = None) -> Task:
        """Return the task; without ``validation``, arrays and data sets hold out a share of their own."""
        if train is None:
            raise TypeError(f"{self.name}: there is no data to learn from")
        for given in (train, validation, test):
            self._check(given)
        told = self._list_labels(classes)
        if validation is None:
            train, validation = self._hold_out(train)
        if _is_pixels_or_numbers(train) and self.outputs_for is None:
            return self._make_in_memory(train, validation, test, told)
        shown, held_out = self.read(train, shuffle=True), self.read(validation)
        if self.outputs_for is None:
            labels = self._find_labels([shown, held_out]) if told is None else told
            names = tuple(map(str, labels))
        else:
            count = self.outputs_for(shown.first_target()) if told is None else len(told)
            labels, names = (), tuple(f"output {number}" for number in range(1, count + 1))
        judged = self.read(test)
        for examples in (shown, held_out, judged):
            if isinstance(examples, LoaderExamples) and labels:
                examples.number_by(labels)
        return Task(self.name, names, shown, held_out, judged, AsGiven(), labels)

    def read(self, given: Given, *, shuffle: bool = False) -> Any:
        """Return examples of anything that may be handed over; None is none."""
        if given is None or isinstance(given, Examples):
            return given or MissingExamples()
        if _is_arrays(given):
            given = ArrayDataset(*given)
        if isinstance(given, Dataset) and not isinstance(given, IterableDataset):
            given = DataLoader(given, batch_size=self.batch_size, shuffle=shuffle)
        elif isinstance(given, IterableDataset):
            given = DataLoader(given, batch_size=self.batch_size)
        return LoaderExamples(given, self.split)

    def _check(self, given: Given) -> None:
        """Refuse what can be no data, and arrays that do not fit each other."""
        if given is None or isinstance(given, Examples | Dataset | DataLoader):
            return
        if _is_arrays(given):
            x, y = given
            lengths = sorted({len(part) for part in _list_parts(x)})
            if lengths != [len(y)]:
                said = " and ".join(map(str, lengths))
                raise ValueError(f"{self.name}: inputs of {said} examples do not fit {len(y)} targets")
        elif isinstance(given, tuple | Mapping | str | bytes | Tensor | np.ndarray) or not isinstance(given, Iterable):
            raise TypeError(
                f"{self.name}: data must be a pair of arrays (x, y), a Dataset or a DataLoader, not a "
                f"{type(given).__name__}"
            )

    def _hold_out(self, train: Given) -> tuple[Given, Given]:
        """Return what is trained on and what is held out; a loader's examples cannot be told apart, so it keeps all."""
        is_whole = not _is_arrays(train) and not isinstance(train, Dataset)
        if is_whole or isinstance(train, IterableDataset):
            return train, None
        size = len(train[1]) if _is_arrays(train) else len(train)
        random = generator_for(self.seed, "validation", self.index)
        parts = hold_out(size, VALIDATION, random, self.name)
        if not _is_arrays(train):
            return tuple(Subset(train, rows.tolist()) for rows in parts)  # type: ignore[return-value]
        return tuple((take(train[0], rows), take(train[1], rows)) for rows in parts)  # type: ignore[return-value]

    def _make_in_memory(self, train: Given, validation: Given, test: Given, told: tuple[int, ...] | None) -> Task:
        """Return a task of pixels or numbers that are in memory, which a GPU may keep ready."""
        for given in (validation, test):
            if not (given is None or isinstance(given, MissingExamples) or _is_arrays(given)):
                raise TypeError(f"{self.name}: arrays for training need arrays for judging, too")
        parts = [train, *([validation] if _is_arrays(validation) else [])]
        found = torch.cat([check_labels(f"{self.name}: labels", y) for _, y in parts])
        labels = tuple(found.unique().tolist()) if told is None else told
        numbering = {label: number for number, label in enumerate(labels)}

        def examples(given: Given) -> Examples:
            if not _is_arrays(given):
                return MissingExamples()
            y = number_labels(check_labels(f"{self.name}: labels", given[1]), numbering)
            return TensorExamples(check_inputs(f"{self.name}: inputs", given[0]), y, classes=len(labels))

        shown, held_out, judged = (examples(part) for part in (train, validation, test))
        return Task(self.name, tuple(map(str, labels)), shown, held_out, judged, Preparation(), labels)

    def _find_labels(self, parts: Sequence[Any]) -> tuple[int, ...]:
        """Return the labels of a task's classes, as one reading of what is learnt and held out finds them."""
        found = [part.scan() for part in parts if isinstance(part, LoaderExamples)]
        for scan in found:
            if not scan.labels:
                kind, shape = scan.target.dtype, tuple(scan.target.shape)
                said = f"a label must be one whole number, but a batch of them has {kind} of {shape}"
                raise TypeError(f"{self.name}: {said}")
        return tuple(sorted({label for scan in found for label in scan.labels}))

    def _list_labels(self, classes: Classes) -> tuple[int, ...] | None:
        """Return the labels that ``classes`` tells, if it tells any."""
        if classes is None:
            return None
        try:
            given = classes.tolist() if isinstance(classes, Tensor | np.ndarray | np.generic) else classes
            labels = tuple(range(index(given))) if isinstance(given, SupportsIndex) else tuple(map(index, given))
        except TypeError:
            raise TypeError(f"{self.name}: classes must be their number or their labels, not {classes!r}") from None
        if not labels or len(set(labels)) < len(labels):
            raise ValueError(f"{self.name}: classes must be one at least, and all different, not {classes!r}")
        return labels


def take(x: Any, rows: Tensor) -> Any:
    """Return some rows of inputs: of an array, or of each array in a tuple or mapping."""
    if isinstance(x, Mapping):
        return {key: take(value, rows) for key, value in x.items()}
    if isinstance(x, tuple | list):
        return tuple(take(value, rows) for value in x)
    return x[rows.to(x.device)] if isinstance(x, Tensor) else x[rows.numpy()]


def _is_array(given: Any) -> bool:
    return isinstance(given, Tensor | np.ndarray)


def _is_arrays(given: Given) -> bool:
    """Whether these are inputs and targets in memory: a list would be one of batches."""
    if not (isinstance(given, tuple) and len(given) == 2 and _is_array(given[1])):
        return False
    return all(_is_array(part) for part in _list_parts(given[0]))


def _list_parts(x: Any) -> list[Any]:
    return list(x.values()) if isinstance(x, Mapping) else list(x) if isinstance(x, tuple | list) else [x]


def _is_pixels_or_numbers(given: Given) -> bool:
    """Whether inputs are one array of pixels or of numbers, and not of tokens."""
    if not (_is_arrays(given) and _is_array(given[0])):
        return False
    kind = torch.as_tensor(given[0][:1]).dtype
    return kind == torch.uint8 or kind.is_floating_point
