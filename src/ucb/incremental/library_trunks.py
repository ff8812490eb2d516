"""Trunks whose weights are a file of the user's: nets of timm, torchvision and transformers, and ONNX files.

A model file holds the trunk's name, the SHA-256 of the weights' file, what is done with pixels, and what the trunk
shows of one image, by which a library that computes otherwise is noticed. With ``embed`` it holds the weights' file,
too. Else the weights are looked for where the user says, where they were, and beside the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucb.incremental.checked_file import FieldError, Fields, check_tensor
from ucb.incremental.library_nets import WEIGHTS, OnnxNet, Pixels, build_net, check_config, read_folder, say_first_line
from ucb.incremental.pretrained import ALIKE, AT_A_TIME, LONGEST_SIDE, AbsentTrunk, ResizingTrunk, WeightsError
from ucb.incremental.trunks import LIBRARIES, Given, find_place
from ucb.seeds import generator_for
from ucb.storage import RefusedFileError, ceilings, read_bytes

KINDS = (*LIBRARIES, "onnx")
SMALLEST_SIDE = 8
HOW = "--weights FILE (in Python: weights=FILE)"


@dataclass(frozen=True)
class NetDescription:
    """What builds a net again, together with its weights."""

    kind: str
    name: str
    """As the library calls it; of transformers the type of model, of an ONNX file nothing."""
    config: Mapping[str, Any]
    """Of a net of transformers."""

    @property
    def title(self) -> str:
        """What a model calls its trunk."""
        return f"{self.kind}:{self.name}" if self.name else self.kind


class LibraryTrunk(ResizingTrunk):
    """A net of another library, built from its description and the bytes of its weights' file.

    ``pixels`` are what is done with them; None leaves it to the library.
    """

    probe: Tensor

    def __init__(self, net: NetDescription, content: bytes, path: Path | None, pixels: Pixels | None = None) -> None:
        super().__init__()
        self.name, self.noted, self.content = net.title, path, None if path is not None else content
        """``content`` are the bytes of the weights' file if the model file is to hold them."""
        try:
            self.net, usual = build_net(net.kind, net.name, content, net.config)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{path or 'the file'} gives no {self.name}: {say_first_line(error)}") from error
        self.prepare(*(usual if pixels is None else pixels))
        if not SMALLEST_SIDE <= self.side <= LONGEST_SIDE:
            said = f"a side from {SMALLEST_SIDE} to {LONGEST_SIDE}, not {self.side}"
            raise ValueError(f"the images of a trunk must have {said}")
        if isinstance(self.net, OnnxNet):
            self.at_a_time = self.net.rows or AT_A_TIME
        image = torch.randint(256, (1, 3, self.side, self.side), generator=generator_for("probe", self.side))
        try:
            found = self(image.to(torch.uint8))
        except Exception as error:
            said = f"{self.name} cannot be applied to images of {self.side} x {self.side}"
            raise ValueError(f"{said}: {say_first_line(error)}") from error
        if not bool(found.isfinite().all()) or not found.shape[1]:
            raise ValueError("the trunk must give finite features, and at least one")
        self.features, self.about = found.shape[1], f"{self.name}, pretrained, fixed"
        self.register_buffer("probe", found[0], persistent=False)
        self.facts = {
            "kind": net.kind,
            "name": net.name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "side": self.side,
            "mean": self.mean.flatten().tolist(),
            "spread": self.spread.flatten().tolist(),
            "features": self.features,
            "size": sum(each.numel() for each in self.net.parameters()) or len(content) // 4,  # about, of an ONNX file
            **({"config": dict(net.config)} if net.kind == "transformers" else {}),
        }

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(self.facts["size"])

    def stored(self) -> dict[str, Tensor]:
        """Return what it shows of one image, and the weights' file if the model file is to hold it."""
        if self.content is None:
            return {"probe": self.probe}
        return {"probe": self.probe, "content": torch.frombuffer(bytearray(self.content), dtype=torch.uint8)}

    def embed(self) -> None:
        """Let a model file hold the weights' file, too."""
        if self.content is None:
            self.content, self.noted = find_content(self.facts["sha256"], self.name, Given(), self.noted)[0], None

    def show(self, x: Tensor) -> Tensor:
        """Return the features of one full batch."""
        found = self.net(self.prepare_pixels(x))
        if not isinstance(found, Tensor) or found.dim() < 2 or len(found) != len(x):
            raise ValueError("it must return a tensor with a row of features for each image")
        return found.flatten(1).float()


def open_library(trunk: str, weights: str | Path | None) -> LibraryTrunk:
    """Return the trunk of a name such as timm:resnet50, transformers:FOLDER or FILE.onnx."""
    kind, _, name = trunk.partition(":")
    place, pixels = find_place(trunk), None
    if place is None and weights is None:
        raise ValueError(f"the trunk {trunk} needs a file with its weights: name it with {HOW}")
    if place is not None and weights is not None:
        raise ValueError(f"the trunk {trunk} says where its weights are: leave --weights out")
    path = _find_file(Path(weights) if place is None else place)  # type: ignore[arg-type]
    if kind == "transformers":
        assert place is not None
        try:
            config, pixels = read_folder(place)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{place} cannot be a trunk: {say_first_line(error)}") from None
        net = NetDescription(kind, config["model_type"], config)
    elif place is not None:
        net = NetDescription("onnx", "", {})
    else:
        net = NetDescription(kind, name, {})
    return LibraryTrunk(net, _read(path), path.absolute(), pixels)


def find_content(sha256: str, name: str, given: Given, noted: Path | None) -> tuple[bytes, Path]:
    """Return the weights with a SHA-256, and where they are: as is ``given``, or as the model has ``noted``."""
    if given.weights is not None:
        places = [given.weights]
    else:
        places = [] if noted is None else [noted, *([] if given.folder is None else [given.folder / noted.name])]
    for place in places:
        path = _find_file(place)
        if path.exists() or given.weights is not None:
            content = _read(path)
            if hashlib.sha256(content).hexdigest() == sha256:
                return content, path.absolute()
    wanted = f"{'a file' if noted is None else noted.name} with the SHA-256 {sha256}"
    if given.weights is not None:
        raise WeightsError(f"{given.weights} is not what the model's trunk {name} was learnt with: that is {wanted}")
    said = "it is not there" if noted is None or not noted.exists() else f"{noted} is another file now"
    raise WeightsError(f"the model's trunk {name} needs {wanted}, and {said}: name it with {HOW}")


def _find_file(place: Path) -> Path:
    """Return the file with the weights at a place, which may be a folder as transformers writes it."""
    return place / WEIGHTS if place.is_dir() else place


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, ceilings.MODEL)
    except FileNotFoundError:
        raise WeightsError(f"there are no weights {path}") from None
    except RefusedFileError as error:
        raise WeightsError(f"the weights cannot be read: {error}") from None


def join_library(
    facts: Fields, tensors: Mapping[str, Tensor], shape: Sequence[int], given: Given
) -> LibraryTrunk | AbsentTrunk:
    """Return the trunk that a model file describes; the weights may be in it, or have to be found."""
    kind, config = facts.one_of("kind", KINDS), {}
    facts.only("kind", "name", "sha256", "side", "mean", "spread", "features", "size", *_own(kind))
    if kind == "transformers":
        config = facts.fields("config").values
        try:
            check_config(config)
        except (ValueError, AttributeError) as error:
            raise FieldError(f"way.trunk.config: {error}") from None
    net = NetDescription(kind, "" if kind == "onnx" else facts.text("name"), config)
    mean, spread = (tuple(facts.list(each, _check_number, 3)) for each in ("mean", "spread"))
    side = facts.whole("side", SMALLEST_SIDE, LONGEST_SIDE)
    if tuple(shape) != (3, side, side) or len(mean) != 3 or len(spread) != 3 or not min(spread) > 0:
        raise FieldError("the shape is not that of the trunk's images, or what is done with pixels is not for colours")
    probe = check_tensor(tensors, "trunk.probe", (facts.whole("features", 1),), torch.float32)
    size, sha256 = facts.whole("size"), facts.text("sha256")
    if isinstance(given.trunk, LibraryTrunk) and given.trunk.facts == facts.values:
        return given.trunk
    if not given.whole:
        return AbsentTrunk(net.title, len(probe), size, facts.values, tensors)
    path, inside = None, tensors.get("trunk.content")
    if inside is None:
        content, path = find_content(sha256, net.title, given, given.noted)
    elif inside.dtype != torch.uint8 or inside.dim() != 1:
        raise FieldError("the tensor trunk.content is no row of bytes")
    elif hashlib.sha256(content := inside.numpy().tobytes()).hexdigest() != sha256:
        raise FieldError("the tensor trunk.content is not what way.trunk.sha256 says")
    try:
        trunk = LibraryTrunk(net, content, path, Pixels(side, mean, spread))
    except ValueError as error:  # the file is as it should be
        raise WeightsError(f"the model's trunk cannot be had: {error}") from None
    off = float((probe - trunk.probe).abs().max()) if trunk.features == len(probe) else float("inf")
    if trunk.facts["size"] != size or off > ALIKE * float(probe.abs().max()):
        raise WeightsError(f"{trunk.name} shows other features here than where the model learnt: another version?")
    return trunk


def _own(kind: str) -> tuple[str, ...]:
    return ("config",) if kind == "transformers" else ()


def _check_number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise FieldError(f"{where} is no number")
    return float(value)
