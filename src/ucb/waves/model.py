"""A model that learns wave after wave from data that nobody keeps, and says how sure it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.engine.job import device_named
from ucb.waves.calibration import Calibration
from ucb.waves.fields import checked_whole
from ucb.waves.fixed import FixedWay
from ucb.waves.keeping import Keeper
from ucb.waves.ongoing import OngoingWay
from ucb.waves.reading import Data
from ucb.waves.sources import Examples, Shape
from ucb.waves.watching import Watcher
from ucb.waves.wave import Report, Wave

if TYPE_CHECKING:
    from ucb.waves.export import Exported
    from ucb.waves.predicting import Inputs, Predicted

METHODS = ("fixed", "ucb-ng")


class Model:
    """Knows classes by name, the waves that taught them, and how sure it is. Without a wave it knows nothing.

    ``method`` is "fixed", a trunk that stays and an exact head, or "ucb-ng", a net that goes on learning with a head
    for each set of classes; ``net`` names that net.

    ``learn`` takes a folder of class folders, a table's file, or inputs and labels: rows ``[n, columns]`` or images
    ``[n, channels, height, width]`` of bytes. ``predict`` takes the same without labels.

    >>> import numpy as np, ucb
    >>> x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    >>> model = ucb.Model()
    >>> report = model.learn((x + 3, ["cat"] * 60))
    >>> report = model.learn((x - 3, ["dog"] * 60))  # the first wave is no longer needed
    >>> model.predict(x[:1] + 3)[0]["label"]
    'cat'
    >>> model.save("animals.ucb")
    """

    def __init__(self, method: str = "fixed", *, net: str | None = None, seed: int = 0) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
        if net is not None and method == "fixed":
            raise ValueError("a net can be chosen with the method ucb-ng; the fixed way makes its own trunk")
        self.method, self.net, self.seed = method, net, checked_whole("seed", seed)
        self.shape: Shape | None = None
        self.columns: list[str] | None = None
        self.label: str | None = None
        """The column with the labels, where the data is a table and somebody named it."""
        self.classes: list[str] = []
        self.waves: list[Wave] = []
        self.way: FixedWay | OngoingWay | None = None
        self.calibration = Calibration()

    @classmethod
    def open(cls, path: str | Path, device: str = "cpu") -> Model:
        """Read a model file; nothing in it can run code, and a damaged one is named as such."""
        from ucb.waves.file import read

        model = read(Path(path))
        if model.way is not None:
            model.way.to(device_named(device))
        return model

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all."""
        from ucb.waves.file import write

        write(Path(path), self)

    def learn(
        self,
        data: Data,
        name: str | None = None,
        *,
        label: str | None = None,
        seed: int | None = None,
        device: str = "cpu",
        epochs: int | None = None,
        watcher: Watcher | None = None,
        keeper: Callable[[Examples, str], Keeper] | None = None,
        again: bool = False,
    ) -> Report:
        """Learn a wave; if that fails, the model is as before. ``data`` is a folder, a file, or inputs and labels.

        A wave that was learnt before is refused, unless it is wanted ``again``. The report says what was learnt, in
        ``warnings`` what should worry, and in ``skipped`` what could not be read.
        """
        from ucb.waves.learning import learn_wave

        new = copy.copy(self)
        report = learn_wave(
            new,
            data,
            name,
            label=label,
            seed=self.seed if seed is None else seed,
            device=device_named(device),
            epochs=epochs,
            watcher=Watcher() if watcher is None else watcher,
            keeper=keeper,
            again=again,
        )
        self.__dict__.update(new.__dict__)
        return report

    def predict(self, data: Inputs, *, watcher: Watcher | None = None) -> Predicted:
        """Answer for each input with label, probability, entropy, mutual information and whether it is unsure.

        ``data`` are paths, or inputs in memory. The answer is a list; its attribute ``skipped`` names what could not be
        read, and why.
        """
        from ucb.waves.predicting import predict

        return predict(self, data, watcher=watcher)

    def show(self) -> dict[str, Any]:
        """Say what the model knows and how sure it is."""
        from ucb.waves.certainty import described

        return described(self)

    def forget_check(self, data: Data, watcher: Watcher | None = None) -> dict[str, Any]:
        """Measure what the model still knows of data that happen to be at hand; nothing is learnt."""
        from ucb.waves.forgetting import forget_check

        return forget_check(self, data, Watcher() if watcher is None else watcher)

    def export(self, path: str | Path) -> Exported:
        """Write an ONNX file that answers like `predict`, checked with onnxruntime before it is put in place."""
        from ucb.waves.export import export

        return export(self, path)

    @property
    def known(self) -> FixedWay | OngoingWay:
        """The way of learning, once there is something learnt."""
        if self.way is None:
            raise ValueError("the model has learnt nothing yet")
        return self.way

    def numbers_of(self, labels: Iterable[str]) -> Tensor:
        """Return the classes' numbers; -1 stands for a class that is not known."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        return torch.tensor([numbers.get(label, -1) for label in labels], dtype=torch.int64)
