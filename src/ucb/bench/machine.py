"""What the figures were measured on."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def machine(device: torch.device | None = None) -> str:
    """Say in one line what this runs on: a GPU, or one thread of the CPU."""
    where = _processor() if device is None or device.type == "cpu" else torch.cuda.get_device_name(device)
    return f"{where}, Python {platform.python_version()}, torch {torch.__version__}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, one thread"
