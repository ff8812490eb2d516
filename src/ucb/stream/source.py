"""One data set in memory, checked once, from which tasks are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucb.bayes.checks import finite
from ucb.stream.examples import Resident
from ucb.stream.preparation import Preparation

Array = Tensor | npt.NDArray[Any]


class Source:
    """Arrays or tensors for training and testing, how they are prepared, and what their classes are called.

    ``x`` is uint8 (pixels) or floating point, ``y`` whole numbers. ``classes`` names them in the order of their labels;
    left out, a class is called by its label. Memory is shared with what is given, not copied.
    """

    def __init__(
        self,
        name: str,
        x_train: Array,
        y_train: Array,
        x_test: Array,
        y_test: Array,
        prepare: Preparation | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.prepare = Preparation() if prepare is None else prepare
        self.y_train, self.y_test = self._labels("y_train", y_train), self._labels("y_test", y_test)
        train, test = self._inputs("x_train", x_train), self._inputs("x_test", x_test)
        for part, x, y in (("train", train, self.y_train), ("test", test, self.y_test)):
            if len(x) != len(y):
                raise ValueError(f"{name}: x_{part} has {len(x)} examples, y_{part} {len(y)} labels")
            if len(x) == 0:
                raise ValueError(f"{name}: there are no examples to {part}")
        if train.shape[1:] != test.shape[1:]:
            raise ValueError(
                f"{name}: an example is {tuple(train.shape[1:])} in training, {tuple(test.shape[1:])} in testing"
            )
        self.x_train, self.x_test = Resident(train), Resident(test)
        self.labels: tuple[int, ...] = tuple(self.y_train.unique().tolist())
        unknown = sorted(set(self.y_test.unique().tolist()) - set(self.labels))
        if unknown:
            raise ValueError(f"{name}: the test labels {unknown} do not occur in training")
        self.classes = tuple(str(label) for label in self.labels) if classes is None else tuple(classes)
        if len(self.classes) != len(self.labels):
            raise ValueError(f"{name}: {len(self.classes)} names for {len(self.labels)} classes")

    def _inputs(self, which: str, given: Array) -> Tensor:
        x = _tensor(f"{self.name}: {which}", given)
        if x.dtype == torch.float64:  # what NumPy makes by default, and nets are rarely made of
            x = x.to(torch.get_default_dtype())
        if x.dtype != torch.uint8 and not x.is_floating_point():
            raise TypeError(f"{self.name}: {which} must be uint8 or floating point, not {x.dtype}")
        return finite(f"{self.name}: {which}", x) if x.is_floating_point() else x

    def _labels(self, which: str, given: Array) -> Tensor:
        y = _tensor(f"{self.name}: {which}", given)
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool or y.dim() != 1:
            raise TypeError(
                f"{self.name}: {which} must be whole numbers in one dimension, not {y.dtype} of {tuple(y.shape)}"
            )
        return y.to("cpu", torch.int64)


def _tensor(name: str, given: Array) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach()
    if not isinstance(given, np.ndarray):
        raise TypeError(f"{name} must be an array or a tensor, not {type(given).__name__}")
    return torch.from_numpy(given if given.flags.writeable else given.copy())
