"""Checks of input: each returns what is right, and raises an error that says what is wrong."""

from __future__ import annotations

import difflib
import math
import operator
import sys
from collections.abc import Iterable

import torch
from torch import Tensor


def is_finite(value: float) -> bool:
    """Whether a number is finite, as a float too: whole numbers can be too large for one."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def positive(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number above 0."""
    if not (is_finite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0, not {value}")
    return value


def not_negative(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number, 0 or above."""
    if not (is_finite(value) and value >= 0):
        raise ValueError(f"{name} must be 0 or above, not {value}")
    return value


def count(name: str, value: int, least: int = 1) -> int:
    """Return ``value`` if it is a whole number of at least ``least`` that the machine can count to."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value > sys.maxsize:
        raise ValueError(f"{name} must be at most {sys.maxsize}, not {value}")
    return value


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of the ``allowed`` words."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def finite(name: str, tensor: Tensor) -> Tensor:
    """Return ``tensor`` if it holds neither NaN nor infinity."""
    if tensor.is_meta:
        raise ValueError(f"{name} has no values yet: it is on the meta device")
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name} holds NaN or infinity")
    return tensor


def check_mask(mask: Tensor, weight: Tensor) -> Tensor:
    """Return ``mask`` on the weight's device, if it is a boolean mask of the weight's shape."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"a mask must be a boolean tensor, not {getattr(mask, 'dtype', type(mask).__name__)}")
    if mask.shape != weight.shape:
        raise ValueError(f"a mask of shape {tuple(mask.shape)} does not fit weights of {tuple(weight.shape)}")
    return mask.to(weight.device, copy=True)


def positive_everywhere(name: str, tensor: Tensor) -> Tensor:
    """Return ``tensor`` if every element is a finite number above 0."""
    if not bool((tensor > 0).all() & tensor.isfinite().all()):
        raise ValueError(f"{name} must be above 0 and finite everywhere")
    return tensor


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a sentence that offers the known words nearest to a wrong one."""
    known = list(known)
    close = difflib.get_close_matches(word.lower(), known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"


def parse_device(name: str) -> torch.device:
    """Return the device of that name, whether this machine has it or not."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu, cuda or cuda:N, not {name!r}")
    return device


def find_device(name: str) -> torch.device:
    """Return the device of that name, if this machine has it."""
    device = parse_device(name)
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if count == 0:
        raise ValueError(f"device {name} is not here: PyTorch finds no CUDA GPU on this machine; use cpu")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(f"device {name} is not here: the GPUs of this machine are cuda:0 to cuda:{count - 1}")
    return device
