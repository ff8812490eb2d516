"""Devices by name."""

from __future__ import annotations

import torch


def device_called(name: str) -> torch.device:
    """Return the device of that name, whether this machine has it or not."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu, cuda or cuda:N, not {name!r}")
    return device


def device_named(name: str) -> torch.device:
    """Return the device of that name, if this machine has it."""
    device = device_called(name)
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if count == 0:
        raise ValueError(f"device {name} is not here: PyTorch finds no CUDA GPU on this machine; use cpu")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(f"device {name} is not here: the GPUs of this machine are cuda:0 to cuda:{count - 1}")
    return device
