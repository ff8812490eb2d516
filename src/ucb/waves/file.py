"""The model file: one safetensors file, the same size however many waves it has learnt, but for new classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucb.data.readers import Shape
from ucb.storage import write_atomically
from ucb.waves.calibration import Calibration
from ucb.waves.fields import FieldError, Fields, checked_text, checked_whole, tensor
from ucb.waves.fixed import FixedWay
from ucb.waves.fixed_file import fixed_from, fixed_parts
from ucb.waves.model import METHODS, Model
from ucb.waves.ongoing_file import ongoing_from, ongoing_parts
from ucb.waves.safe import DamagedModelError, packed, unpacked, unpacked_bytes
from ucb.waves.wave_file import FIGURES, waves_from, waves_parts

LONGEST_SIDE = 1024
MOST_CLASSES, MOST_COLUMNS = 100_000, 1_000_000
LARGEST_STATISTIC = 1e18
"""Of the calibration: far more than held-out examples can add up to."""


def write(path: Path, model: Model) -> None:
    """Put a model at ``path`` whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_bytes(model))


def to_bytes(model: Model) -> bytes:
    """Return a model as the bytes of its file."""
    way = model.known
    facts, tensors = fixed_parts(way) if isinstance(way, FixedWay) else ongoing_parts(way)
    waves, figures = waves_parts(model.waves, model.classes)
    values = {
        "method": model.method,
        "net": model.net,
        "seed": model.seed,
        "shape": list(model.shape or ()),
        "columns": model.columns,
        "label": model.label,
        "classes": model.classes,
        "waves": waves,
        "way": facts,
    }
    own = {f"calibration.{name}": value for name, value in model.calibration.state_dict().items()}
    data = packed(values, {**tensors, **figures, **own})
    _refuse_unreadable(data)
    return data


def _refuse_unreadable(data: bytes) -> None:
    """Refuse to write what could not be read again: the data are about to be deleted."""
    try:
        _understood(unpacked_bytes(data), "it")
    except DamagedModelError as error:
        raise ValueError(f"the model is not written, since its file could not be read again: {error}") from None


def read(path: Path) -> Model:
    """Return the model in a file; whatever is wrong with it is said in one sentence."""
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}: `ucb learn {path} DATA` makes one")
    return _understood(unpacked(path), str(path))


def _understood(content: tuple[dict[str, Any], dict[str, Tensor]], named: str) -> Model:
    """Return the model that a file describes."""
    values, tensors = content
    try:
        return _model(Fields(values), tensors)
    except FieldError as error:
        raise DamagedModelError(f"{named} is damaged: {error}") from None
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, OverflowError, AttributeError) as error:
        raise DamagedModelError(f"{named} is damaged: {str(error)[:200]}") from None


def _model(fields: Fields, tensors: Mapping[str, Tensor]) -> Model:
    fields.only("method", "net", "seed", "shape", "columns", "label", "classes", "waves", "way")
    method = fields.one_of("method", METHODS)
    model = Model(method, net=fields.optional_text("net"), seed=fields.whole("seed"))
    model.shape = _shape(fields)
    model.columns = None if fields.get("columns") is None else fields.list("columns", checked_text, MOST_COLUMNS)
    if model.columns is not None and (len(model.shape) != 1 or len(model.columns) != model.shape[0]):
        raise FieldError("columns do not fit the shape")
    model.label = fields.optional_text("label")
    model.classes = fields.list("classes", checked_text, MOST_CLASSES)
    if not model.classes or len(set(model.classes)) < len(model.classes):
        raise FieldError("classes are none, or one stands there twice")
    model.waves = waves_from(fields, model.classes, tensors)
    if not model.waves:
        raise FieldError("waves are none")
    facts = Fields(fields.get("way"), "way")
    calibration = {name: value for name, value in tensors.items() if name.startswith("calibration.")}
    own = {name: value for name, value in tensors.items() if name not in calibration and name != FIGURES}
    model.calibration = _calibration(calibration)
    model.way = fixed_from(model, facts, own) if method == "fixed" else ongoing_from(model, facts, own)
    return model


def _shape(fields: Fields) -> Shape:
    shape = tuple(fields.list("shape", lambda where, value: checked_whole(where, value, 1, MOST_COLUMNS), 3))
    if len(shape) == 1 or (len(shape) == 3 and shape[0] in (1, 3) and max(shape[1:]) <= LONGEST_SIDE):
        return shape
    raise FieldError(f"shape is {list(shape)}, neither an image's nor a row's")


def _calibration(tensors: Mapping[str, Tensor]) -> Calibration:
    calibration = Calibration()
    wanted = calibration.state_dict()
    found = {
        name: tensor(tensors, f"calibration.{name}", tuple(like.shape), torch.float64) for name, like in wanted.items()
    }
    if len(tensors) > len(found):
        raise FieldError("there are tensors of calibration that nobody knows")
    if bool((found["histogram"] < 0).any() | (found["moments"][:, 0] < 0).any() | (found["nll"] < 0).any()):
        raise FieldError("a count of the calibration is below 0")
    count, total, squares = found["moments"].unbind(1)
    largest = max(float(statistic.abs().max()) for statistic in found.values())
    if largest > LARGEST_STATISTIC or bool((total.square() > (1 + 1e-6) * count * squares).any()):
        raise FieldError("the statistics of the calibration are not those of any data")
    calibration.load_state_dict(found)
    return calibration
