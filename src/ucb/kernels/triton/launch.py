"""Whether the Triton kernels can serve here, and how one of them is started."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, cast

import torch
from torch import Tensor

BLOCK = 512
"""Elements of one program: four for each thread of four warps. With eight, ten samples do not fit the registers."""

WARPS = 4

MOST = 2**31 - BLOCK
"""Elements and counters are numbered in 32 bits, the empty places of a last block included."""


def available(device: torch.device) -> bool:
    """Say whether the fused kernels can work on tensors of ``device``."""
    return device.type == "cuda" and not _is_switched_off() and _capable(device)


def supports(*tensors: Tensor) -> bool:
    """Say whether the fused kernels can work on these tensors: contiguous, single precision, on such a device."""
    return all(t.dtype == torch.float32 and t.is_contiguous() and available(t.device) for t in tensors)


def status() -> str:
    """Say in one line whether fused kernels are in use, and if not, why."""
    missing = "UCB_KERNELS=off" if _is_switched_off() else _missing()
    return f"PyTorch ({missing})" if missing else f"fused by Triton {importlib.import_module('triton').__version__}"


def _is_switched_off() -> bool:
    return os.environ.get("UCB_KERNELS", "on") == "off"


@functools.cache
def _capable(device: torch.device) -> bool:
    return _missing() is None and torch.cuda.get_device_capability(device) >= (7, 0)  # Triton knows no older ones


@functools.cache
def _missing() -> str | None:
    """Return why no device can have kernels, or None."""
    if not torch.cuda.is_available():
        return "no CUDA device"  # and Triton, whose import is slow, is not needed to tell
    try:
        module_of("fused_source")
    except ImportError as error:
        return f"no Triton: {error}"
    return None


@functools.cache
def module_of(name: str) -> Any:
    """Return a module of Triton code, imported when it is first needed: importing Triton is slow."""
    return importlib.import_module(f"ucb.kernels.triton.{name}")


def launch(kernel: str, n: int, *args: Tensor | float | None, **constants: int | bool) -> None:
    """Start ``kernel`` for n elements on the device of the first argument."""
    if n > 0:
        start(module_of("fused_source"), kernel, (blocks(n),), *args, **constants, block=BLOCK, num_warps=WARPS)


def start(
    source: Any, kernel: str, grid: tuple[int, ...], *args: Tensor | float | None, **constants: int | bool | str
) -> None:
    """Start a grid of programs of a module's ``kernel`` on the device of the first argument."""
    first = args[0]
    assert isinstance(first, Tensor)
    with torch.cuda.device_of(first):
        getattr(source, kernel)[grid](*args, **constants)


def apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """Call a function of autograd, whose types PyTorch does not tell."""
    return cast(Tensor, function.apply(*args))


def blocks(n: int) -> int:
    """Return the number of programs for n elements."""
    return -(-n // BLOCK)


def size_of(*tensors: Tensor | None) -> int:
    """Return the number of elements of tensors that a kernel walks together, having checked that it can."""
    first = tensors[0]
    assert first is not None
    for t in tensors:
        if t is None:
            continue
        if t.dtype != torch.float32 or not t.is_contiguous():
            raise ValueError(f"a fused kernel needs contiguous float32 tensors, not {_words(t)}")
        if t.shape != first.shape or t.device != first.device:
            raise ValueError(f"{_words(t)} does not fit {_words(first)}")
    if first.numel() > MOST:
        raise ValueError(f"{first.numel()} elements are more than one kernel can number")
    return first.numel()


def mask_of(keep: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a mask as bytes, in the same memory."""
    if keep is None:
        return None
    fits = keep.dtype == torch.bool and keep.shape == like.shape and keep.device == like.device
    if not fits or not keep.is_contiguous():
        raise ValueError(f"keep must be a contiguous boolean mask of {_words(like)}, not {_words(keep)}")
    return keep.view(torch.uint8)


def _words(t: Tensor) -> str:
    return f"{'' if t.is_contiguous() else 'scattered '}{t.dtype} {tuple(t.shape)} on {t.device}"
