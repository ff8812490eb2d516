"""Examples that come from outside as batches: DataLoaders and their like, and batches that are more than one tensor.

A loader decides itself how it batches, collates and shuffles. All random numbers that it draws come from a seed, one
for each epoch, and never from the generators that training uses: so an epoch can be read again, from any batch on.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ucb.data.streams.tasks import Examples, Preparation, number_labels

TARGETS = ("labels", "label", "targets", "target", "y")
"""The names under which a mapping may hold what is to be learnt."""
SplitBatch = Callable[[Any], tuple[Any, Any]]
"""Takes what a loader yields to the net's inputs and the targets."""
READ_SEED = 0
"""Of a loader that is read for judging, or to look at its labels."""
PLAIN_SAMPLERS = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
END = object()
"""What comes after the last batch."""


def split_batch(batch: Any) -> tuple[Any, Any]:
    """Return inputs and targets: of a tuple the last element is the target, of a mapping what is called ``labels``.

    >>> split_batch({"input_ids": 1, "attention_mask": 2, "labels": 3})
    ({'input_ids': 1, 'attention_mask': 2}, 3)
    >>> split_batch((1, 2, 3))
    ((1, 2), 3)
    """
    if isinstance(batch, Mapping):
        name = next((name for name in TARGETS if name in batch), None)
        if name is None:
            raise ValueError(f"a batch has {', '.join(map(repr, batch))}, and none of {', '.join(TARGETS)}: say split=")
        return {key: value for key, value in batch.items() if key != name}, batch[name]
    if isinstance(batch, Sequence) and len(batch) >= 2:
        return (batch[0] if len(batch) == 2 else tuple(batch[:-1])), batch[-1]
    raise TypeError(f"a batch must be a pair, a longer tuple or a mapping, not a {type(batch).__name__}: say split=")


def move(x: Any, device: torch.device) -> Any:
    """Return inputs on a device: tensors, and tuples, lists and mappings of them; all else stays as it is."""
    if isinstance(x, Tensor):
        return x.to(device, non_blocking=True)
    if isinstance(x, Mapping):
        return {key: move(value, device) for key, value in x.items()}
    if isinstance(x, tuple | list):
        return tuple(move(value, device) for value in x)
    return x


class AsGiven(Preparation):
    """Leaves inputs as a loader gives them: they may be tokens, or several tensors."""

    def __call__(self, x: Any) -> Any:
        """Return the inputs."""
        return x


class OwnRandomNumbers:
    """Random numbers of PyTorch, NumPy and Python that begin with a seed and that nobody else draws from."""

    def __init__(self, seed: int) -> None:
        others = self._take()
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (data sets use it)
        self.state = self._take()
        self._put(others)

    def draw(self, work: Callable[[], Any]) -> Any:
        """Return what some work gives that draws from them; the process's own stay where they are."""
        others = self._take()
        self._put(self.state)
        try:
            return work()
        finally:
            self.state = self._take()
            self._put(others)

    def _take(self) -> tuple[Tensor, Any, Any]:
        return torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002

    def _put(self, state: tuple[Tensor, Any, Any]) -> None:
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        np.random.set_state(state[2])  # noqa: NPY002


@dataclass(frozen=True)
class Scan:
    """What one reading of a loader shows: how many examples and batches, which labels, and the last batch's targets."""

    examples: int
    batches: int
    labels: tuple[int, ...]
    """In ascending order; none where the targets are no single whole numbers."""
    target: Tensor


class LoaderExamples(Examples):
    """Examples of a DataLoader, or of anything else that yields batches each time that it is iterated over.

    ``split`` takes a batch to inputs and targets; ``numbering`` says which number stands for each label. The loader's
    own generators, and the process's while it reads, are seeded for each epoch.
    """

    def __init__(
        self, loader: Iterable[Any], split: SplitBatch = split_batch, numbering: Mapping[int, int] | None = None
    ) -> None:
        if isinstance(loader, Iterator):
            raise TypeError(
                f"a {type(loader).__name__} can be read only once, and every epoch needs the data: give a DataLoader"
            )
        self.loader, self.split, self.numbering = loader, split, numbering
        self._scan: Scan | None = None
        if isinstance(loader, list) and not loader:
            raise ValueError("there are no examples")

    @property
    def is_repeatable(self) -> bool:
        """Whether an epoch is known to come again in the same order: nobody knows what an IterableDataset does."""
        return not isinstance(getattr(self.loader, "dataset", None), IterableDataset)

    def scan(self) -> Scan:
        """Read all of it once, if that was not done yet, and say what was found."""
        if self._scan is None:
            examples = batches = 0
            labels: set[int] = set()
            for _, y in self.read(torch.device("cpu")):
                examples, batches, target = examples + len(y), batches + 1, y
                if y.dim() == 1 and not y.is_floating_point():
                    labels.update(y.unique().tolist())
            if examples == 0:
                raise ValueError("there are no examples")
            self._scan = Scan(examples, batches, tuple(sorted(labels)), target)
        return self._scan

    def number_by(self, labels: Sequence[int]) -> None:
        """Let labels be told by their places among these."""
        self.numbering = {label: number for number, label in enumerate(labels)}

    def _count_plainly(self) -> tuple[int, int] | None:
        """Return how many examples and batches there are, if PyTorch's own samplers can tell without a reading."""
        batching = getattr(self.loader, "batch_sampler", None)
        if not isinstance(self.loader, DataLoader) or type(batching) is not BatchSampler or not self.is_repeatable:
            return None
        if type(batching.sampler) not in PLAIN_SAMPLERS:
            return None
        size, batches = len(batching.sampler), len(batching)  # type: ignore[arg-type]
        return (batches * batching.batch_size if batching.drop_last else size), batches

    def __len__(self) -> int:
        plain = self._count_plainly() if self._scan is None else None
        return self.scan().examples if plain is None else plain[0]

    def num_batches(self, batch_size: int) -> int:
        """Return how many batches an epoch has; the loader decides their size."""
        plain = self._count_plainly() if self._scan is None else None
        return self.scan().batches if plain is None else plain[1]

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Any, Tensor]]:
        """Refuse to be read in an order of somebody else's."""
        raise TypeError("a loader decides the order of its examples: give arrays to whoever mixes tasks")

    def in_order(self, batch_size: int, device: torch.device) -> Iterator[tuple[Any, Tensor]]:
        """Yield all batches, as one seed orders them."""
        return self.read(device)

    def first(self) -> Any:
        """Return the inputs of the first batch."""
        return next(self.read(torch.device("cpu")))[0]

    def first_target(self) -> Tensor:
        """Return the targets of the first batch."""
        return next(self.read(torch.device("cpu")))[1]

    def read(self, device: torch.device, seed: int = READ_SEED, skip: int = 0) -> Iterator[tuple[Any, Tensor]]:
        """Yield the batches of an epoch after the first ``skip``, which are read all the same: they draw, too."""
        for generator in self._generators():
            generator.manual_seed(seed)
        own = OwnRandomNumbers(seed)
        batches = own.draw(lambda: iter(self.loader))
        for number in itertools.count():
            batch = own.draw(lambda: next(batches, END))
            if batch is END:
                return
            if number >= skip:
                x, y = self.split(batch)
                y = torch.as_tensor(y)
                if y.dim() == 0:
                    raise TypeError("a loader must yield batches, and this one yields single examples: set batch_size")
                yield move(x, device), move(self._number(y), device)

    def _number(self, y: Tensor) -> Tensor:
        return y if self.numbering is None else number_labels(y, self.numbering)

    def _generators(self) -> list[torch.Generator]:
        """Return the generators that the loader and its samplers were given."""
        loader = self.loader
        holders = [loader, getattr(loader, "sampler", None), batching := getattr(loader, "batch_sampler", None)]
        holders.append(getattr(batching, "sampler", None))
        found = [getattr(holder, "generator", None) for holder in holders]
        return [generator for generator in found if isinstance(generator, torch.Generator)]


class MissingExamples(Examples):
    """Stands for data that is not here: of a task that is over, or that nobody gave."""

    def __len__(self) -> int:
        return 0

    def num_batches(self, batch_size: int) -> int:
        """Return more than there can be: how many there were is not known."""
        return sys.maxsize

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Any, Tensor]]:
        """Yield nothing."""
        return iter(())


class ArrayDataset(Dataset[Any]):
    """Inputs in memory, one array or a tuple or mapping of several, with a target for each example."""

    def __init__(self, x: Any, y: Any) -> None:
        if isinstance(x, Mapping):
            self.x: Any = {key: torch.as_tensor(value) for key, value in x.items()}
        else:
            self.x = tuple(map(torch.as_tensor, x)) if isinstance(x, tuple | list) else torch.as_tensor(x)
        self.y = torch.as_tensor(y)
        parts = self.x.values() if isinstance(x, Mapping) else self.x if isinstance(self.x, tuple) else [self.x]
        lengths = sorted({len(part) for part in parts})
        if lengths != [len(self.y)]:
            raise ValueError(f"inputs of {', '.join(map(str, lengths))} examples do not fit {len(self.y)} targets")

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.x, Mapping):
            return {key: value[index] for key, value in self.x.items()}, self.y[index]
        x = tuple(value[index] for value in self.x) if isinstance(self.x, tuple) else self.x[index]
        return x, self.y[index]
