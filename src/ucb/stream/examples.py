"""Labelled examples, in memory or read when they are needed, served in a given order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sized
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ucb.bayes.checks import count


class Examples(ABC):
    """Some labelled examples, served by ``batches`` in an order that the caller decides, so that runs can repeat it."""

    is_fixed = False
    """Whether they are in memory, the same whenever they are asked for: then a GPU may keep them ready."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) on ``device`` for the examples whose indices ``order`` lists."""

    def in_order(self, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) on ``device`` for all examples, as they are numbered."""
        return self.batches(torch.arange(len(self)), batch_size, device)

    @cached_property
    def numbers_each(self) -> int:
        """How many numbers the x of one example is made of."""
        first, _ = next(iter(self.batches(torch.arange(1), 1, torch.device("cpu"))))
        return first.numel()


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
            checked_indices("rows", rows, len(self.x))
        if int(y.min()) < 0 or (classes is not None and int(y.max()) >= classes):
            allowed = "0 or above" if classes is None else f"between 0 and {classes - 1}"
            raise ValueError(f"labels must be {allowed}, not {int(y.min())} to {int(y.max())}")
        self.y = Resident(y)
        self.rows = None if rows is None else Resident(rows)

    def __len__(self) -> int:
        return len(self.y)

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y), gathered on ``device`` from what is already there."""
        checked_indices("order", order, len(self))
        count("batch_size", batch_size)
        return self._gather(order.to(device), batch_size, device)

    def _gather(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.x.on(device), self.y.on(device)
        rows = order if self.rows is None else self.rows.on(device)[order]
        for some_rows, some in zip(rows.split(batch_size), order.split(batch_size), strict=True):
            if len(some):  # an empty tensor splits into one empty piece
                yield x.index_select(0, some_rows), y.index_select(0, some)

    def in_order(self, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) for all examples: no order has to be checked, and none goes to the device."""
        count("batch_size", batch_size)
        return self._gather_in_order(batch_size, device)

    def _gather_in_order(self, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.x.on(device), self.y.on(device)
        rows = torch.arange(len(self), device=device) if self.rows is None else self.rows.on(device)
        for some_rows, labels in zip(rows.split(batch_size), y.split(batch_size), strict=True):
            yield x.index_select(0, some_rows), labels.clone()

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
        self.rows = torch.arange(len(dataset)) if rows is None else checked_indices("rows", rows, len(dataset))
        self.numbering = numbering
        self.workers = count("workers", workers, least=0)

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) as a DataLoader reads and collates them."""
        checked_indices("order", order, len(self))
        count("batch_size", batch_size)
        items = self.rows[order.cpu()]
        loader: DataLoader[Any] = DataLoader(
            self.dataset,
            batch_size=batch_size,
            sampler=items.tolist(),
            num_workers=self.workers,
            pin_memory=device.type == "cuda",
            generator=_from(items),
        )
        return self._read(loader, device)

    def _read(self, loader: DataLoader[Any], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        for x, labels in loader:
            y = self._numbered(torch.as_tensor(labels))
            yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)

    def _numbered(self, labels: Tensor) -> Tensor:
        if labels.is_floating_point() or labels.dim() != 1:
            raise TypeError(
                f"a label must be one whole number, but a batch of them has {labels.dtype} of {tuple(labels.shape)}"
            )
        if self.numbering is None:
            if int(labels.min()) < 0:
                raise ValueError(f"labels must be 0 or above, not {int(labels.min())}")
            return labels.long()
        try:
            return torch.tensor([self.numbering[label] for label in labels.tolist()])
        except KeyError as unknown:
            known = ", ".join(str(label) for label in sorted(self.numbering))
            raise ValueError(f"the label {unknown} is not one of this task's: {known}") from None


def checked_indices(name: str, indices: Tensor, size: int) -> Tensor:
    """Return ``indices`` if they are a list of whole numbers from 0 to ``size`` - 1."""
    if indices.dtype != torch.int64 or indices.dim() != 1:
        raise TypeError(f"{name} must be int64 in one dimension, not {indices.dtype} of {tuple(indices.shape)}")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise ValueError(f"{name} must lie between 0 and {size - 1}, not {int(indices.min())} to {int(indices.max())}")
    return indices


def _from(items: Tensor) -> torch.Generator:
    """Return a generator for a loader's workers that depends on the order alone, and spares PyTorch's global one."""
    digest = hashlib.sha256(items.numpy().tobytes()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
