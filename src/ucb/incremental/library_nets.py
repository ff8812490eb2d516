"""Nets of other libraries as trunks: of timm, torchvision and transformers with weights from a file, and ONNX files.

Nothing is fetched, and no code comes with weights: they are tensors in a safetensors file or in one of PyTorch, of
which nothing beyond tensors is unpickled. From a name or a configuration the library builds the architecture, whose
last layer, of its classes, is left out. What is done with pixels is what the library says of the net.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from ucb.storage import read_object

USUAL_SIDE = 224
USUAL_MEAN, USUAL_SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's images, as fractions from 0 to 1."""
WHITE = 255.0
WEIGHTS, CONFIG, PIXELS = "model.safetensors", "config.json", "preprocessor_config.json"
"""What a folder that `save_pretrained` wrote holds."""
NOT_KEPT = (
    "architectures",
    "attn_implementation",
    "dtype",
    "id2label",
    "label2id",
    "torch_dtype",
    "transformers_version",
)
"""What of a configuration of transformers says nothing about features; neither do names that begin with _."""
REFUSED = ("auto_map", "backbone", "quantization", "timm")
"""With a setting whose name has one of these in it, a net would need other code or other weights."""
DEEPEST, LONGEST = 4, 1000
"""How deeply a configuration may be nested, and how many values one part of it may have."""
TRANSFORMED = ("googlenet", "inception_v3")
"""Nets of torchvision whose published weights want pixels as another library prepares them, which the net does."""
PACKAGES = {"onnx": "onnxruntime"}
"""The package that a kind of trunk needs, if it is not its namesake."""


class Pixels(NamedTuple):
    """What is done with pixels from 0 to 255: (pixel - mean) / spread in each channel, for images of one side."""

    side: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]


def say_fractions(side: int, mean: Any, spread: Any, scale: float = 1 / WHITE) -> Pixels:
    """Return what is done with pixels where a library says it of pixels times ``scale``."""
    both = [[float(each) / scale for each in values] for values in (mean, spread)]
    return Pixels(int(side), *(tuple(values * 3 if len(values) == 1 else values) for values in both))


USUAL = say_fractions(USUAL_SIDE, USUAL_MEAN, USUAL_SPREAD)


class MissingPackageError(OSError):
    """A library that a trunk needs and that is not there."""


def load_package(kind: str) -> Any:
    """Return the library of a kind of trunk; if it cannot be had, one sentence says why."""
    name = PACKAGES.get(kind, kind)
    try:
        return import_module(name)
    except ImportError as error:
        if error.name == name:
            said = "pip install 'ucb[onnx]'" if kind == "onnx" else f"pip install {name}"
            raise MissingPackageError(f"this trunk needs the package {name}: install it with `{said}`") from None
        raise MissingPackageError(f"this trunk needs the package {name}, which cannot be loaded: {error}") from None
    except Exception as error:  # a build for another version of PyTorch may say anything
        said = say_first_line(error)
        raise MissingPackageError(f"this trunk needs the package {name}, which cannot be loaded: {said}") from None


def say_first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def read_state(content: bytes) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or of a file of PyTorch that holds nothing but tensors."""
    if content[8:9] == b"{":
        return safetensors.torch.load(content)
    found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    for name in "state_dict", "model":
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    ):
        raise ValueError("it holds no weights by their names")
    return found


def build_net(kind: str, name: str, content: bytes, config: Mapping[str, Any]) -> tuple[nn.Module, Pixels]:
    """Return a net that turns prepared pixels into features, and what its library says is done with pixels.

    Only :mod:`transformers` needs ``config``; it says nothing of pixels there.
    """
    build: Callable[..., tuple[nn.Module, Pixels]] = {
        "timm": _build_timm,
        "torchvision": _build_torchvision,
        "transformers": _build_transformers,
        "onnx": _build_onnx,
    }[kind]
    with torch.random.fork_rng(devices=[]):
        net, pixels = build(load_package(kind), name, content, config)
    return net.float().eval().requires_grad_(False), pixels


def _build_timm(timm: Any, name: str, content: bytes, _: Mapping[str, Any]) -> tuple[nn.Module, Pixels]:
    if ":" in name or not timm.is_model(name):  # names with a colon are places to fetch from
        raise ValueError(f"timm {timm.__version__} has no model {name!r}")
    net = timm.create_model(name, pretrained=False, num_classes=0)
    heads = net.pretrained_cfg.get("classifier") or ()
    _load(net, read_state(content), (heads,) if isinstance(heads, str) else tuple(heads))
    known = timm.data.resolve_data_config({}, model=net)
    channels, *sides = known["input_size"]
    if channels != 3 or sides[0] != sides[1]:
        raise ValueError(f"timm:{name} takes no square images in colour")
    return net, say_fractions(sides[0], known["mean"], known["std"])


def _build_torchvision(torchvision: Any, name: str, content: bytes, _: Mapping[str, Any]) -> tuple[nn.Module, Pixels]:
    models = torchvision.models
    if name not in models.list_models(module=models):
        raise ValueError(f"torchvision {torchvision.__version__} has no model {name!r} for classes of images")
    how = {"transform_input": True, "init_weights": False} if name in TRANSFORMED else {}
    net: nn.Module = models.get_model(name, weights=None, **how)
    linear = [place for place, layer in net.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ValueError(f"torchvision:{name} has no linear layer at its end whose input could be its features")
    net.set_submodule(linear[-1], nn.Identity())
    _load(net, read_state(content), linear[-1:])
    try:
        known = models.get_model_weights(name).DEFAULT.transforms()
        return net, say_fractions(known.crop_size[0], known.mean, known.std)
    except (AttributeError, ValueError, TypeError):  # it has no published weights
        return net, USUAL


def _load(net: nn.Module, weights: Mapping[str, Tensor], heads: Any) -> None:
    """Give a net its weights, all of them; those of a head that it no longer has are left out."""
    own = {name: each for name, each in weights.items() if not name.startswith(tuple(f"{head}." for head in heads))}
    like = net.state_dict()
    for name in sorted(like.keys() | own.keys()):
        if name not in own or name not in like or own[name].shape != like[name].shape:
            how = "missing" if name not in own else "not of this net" if name not in like else "of another shape"
            raise ValueError(f"{name!r} is {how}")
    net.load_state_dict(own)


def read_folder(folder: Path) -> tuple[dict[str, Any], Pixels]:
    """Return a net's configuration and what is done with its pixels, of a folder that `save_pretrained` wrote."""
    for name in WEIGHTS, CONFIG, PIXELS:
        if not (folder / name).exists():
            raise ValueError(f"it has no {name}, as `save_pretrained` writes it")
    config, pixels = read_object(folder / CONFIG, "model_type"), read_object(folder / PIXELS, "image_mean", "image_std")
    kept = _keep(config)
    check_config(kept)
    if pixels.get("do_flip_channel_order") or not pixels.get("do_normalize", True):
        raise ValueError(f"{PIXELS} does not normalise red, green and blue")
    size = (pixels.get("do_center_crop") and pixels.get("crop_size")) or pixels.get("size") or USUAL_SIDE
    sides = {int(side) for side in size.values()} if isinstance(size, dict) else {int(size)}
    if len(sides) != 1:
        raise ValueError(f"{PIXELS} does not make images square")
    scale = float(pixels.get("rescale_factor", 1 / WHITE)) if pixels.get("do_rescale", True) else 1.0
    return kept, say_fractions(sides.pop(), pixels["image_mean"], pixels["image_std"], scale)


def _says_something(name: str) -> bool:
    return name not in NOT_KEPT and not name.startswith("_")


def _keep(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a configuration says something about features."""
    kept = ((name, value) for name, value in config.items() if _says_something(name))
    return {name: _keep(value) if isinstance(value, dict) else value for name, value in kept}


def check_config(config: Any, depth: int = DEEPEST) -> None:
    """Refuse a configuration of transformers that is not plain, or with which a net would need more than weights."""
    if depth == DEEPEST and (not isinstance(config, dict) or not isinstance(config.get("model_type"), str)):
        raise ValueError("its configuration has no model_type")
    if depth == 0 or len(config) > LONGEST:
        raise ValueError("its configuration is too large")
    for name, value in config.items() if isinstance(config, dict) else enumerate(config):
        named = f"{name} {value}" if name == "model_type" else str(name)
        if (value and any(word in named for word in REFUSED)) or not _says_something(named):
            raise ValueError(f"its configuration asks for more than weights ({named[:40]})")
        if isinstance(value, dict | list):
            check_config(value, depth - 1)


def _build_transformers(
    transformers: Any, name: str, content: bytes, config: Mapping[str, Any]
) -> tuple[nn.Module, Pixels]:
    state = safetensors.torch.load(content)
    _refuse_deeper(config, len(state))
    built = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):  # tells sizes, and takes no memory: the weights may be smaller
        like = transformers.AutoModel.from_config(built, attn_implementation="eager")
    if sum(each.numel() for each in like.parameters()) > 2 * sum(each.numel() for each in state.values()):
        raise ValueError("its configuration is of a larger net")
    how = {"config": built, "state_dict": state, "attn_implementation": "eager", "local_files_only": True}
    with _silence(transformers):
        net, found = type(like).from_pretrained(None, **how, use_safetensors=True, output_loading_info=True)
    missing = sorted(found["missing_keys"])
    if odd := [each for each in missing if "pooler" not in each]:
        raise ValueError(f"{odd[0]!r} is missing")
    return TransformersNet(net, is_pooled=not missing), USUAL


def _refuse_deeper(config: Mapping[str, Any], tensors: int) -> None:
    """Refuse a configuration of more layers than there are weights for: to build them would take for ever."""
    for name, value in config.items():
        if isinstance(value, dict):
            _refuse_deeper(value, tensors)
        elif "layer" in name or "depth" in name or name.startswith("num_"):
            numbers = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int)]
            if sum(numbers) > max(tensors, 1000):
                raise ValueError(f"its configuration is of a larger net ({name})")


@contextmanager
def _silence(transformers: Any) -> Iterator[None]:
    """Keep transformers from drawing bars, and from warnings about what is looked at here."""
    logging = transformers.utils.logging
    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


class TransformersNet(nn.Module):
    """What a net of transformers pools; where its pooler has no weights, its first token, or the mean of its maps."""

    def __init__(self, net: nn.Module, is_pooled: bool) -> None:
        super().__init__()
        self.net, self.is_pooled = net, is_pooled
        self.has_token = any(name.rpartition(".")[2] == "cls_token" for name, _ in net.named_parameters())

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features of images."""
        found = self.net(pixel_values=pixels)
        pooled: Tensor | None = getattr(found, "pooler_output", None)
        if pooled is not None and self.is_pooled:
            return pooled.flatten(1)
        last: Tensor = found.last_hidden_state
        if last.dim() == 3:
            return last[:, 0] if self.has_token else last.mean(1)
        return last.flatten(2).mean(2)


class OnnxNet(nn.Module):
    """An ONNX file as a net: pixels [n, 3, H, W] become its first output, a row for each image."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content
        runtime = load_package("onnx")
        options = runtime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, torch.get_num_threads()
        self.session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        sources = self.session.get_inputs()
        shape = [each if isinstance(each, int) else None for each in sources[0].shape]
        self.is_last = len(shape) == 4 and shape[1] != 3 and shape[3] == 3
        """Whether channels are the last axis."""
        channels, *sides = (shape[3:] + shape[1:3] if self.is_last else shape[1:]) or [None]
        if len(sources) > 1 or sources[0].type != "tensor(float)" or channels != 3 or len(sides) != 2:
            said = "[n, 3, side, side] or [n, side, side, 3]"
            raise ValueError(f"its input must be one of float32 images {said}, not {sources[0].shape}")
        if sides[0] is None or sides[0] != sides[1]:
            raise ValueError(f"the side of its images must be one number that it says, not {sources[0].shape}")
        self.side, self.rows = sides[0], shape[0]

    def __reduce__(self) -> Any:
        return OnnxNet, (self.content,)

    def __deepcopy__(self, _: Any) -> OnnxNet:
        return self  # nothing in it changes

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features of images."""
        array = (pixels.permute(0, 2, 3, 1) if self.is_last else pixels).contiguous().cpu().numpy()
        first, *_ = self.session.run([self.session.get_outputs()[0].name], {self.session.get_inputs()[0].name: array})
        return torch.from_numpy(first).float().reshape(len(first), -1).to(pixels.device)


def _build_onnx(_: Any, name: str, content: bytes, config: Mapping[str, Any]) -> tuple[nn.Module, Pixels]:
    net = OnnxNet(content)
    return net, USUAL._replace(side=net.side)
