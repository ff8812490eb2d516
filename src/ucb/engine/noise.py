"""Which kernels draw a run's noise: others draw other numbers, though from the same distribution."""

from __future__ import annotations

import torch

from ucb.bayes import kernels
from ucb.bayes.kernels import fused


def kernels_on(device: torch.device) -> str:
    """Say in one line which kernels draw noise on a device."""
    status = fused.status() if device.type == "cuda" else kernels.status()
    return status.splitlines()[0]


def keep_kernels(known: list[str], device: torch.device) -> str | None:
    """Add the kernels of a device to those ``known`` to have drawn a run's noise; if they are others, say what follows.

    What is in brackets is why there are no better ones, and changes nothing.
    """
    now = kernels_on(device)
    if known and _name(known[-1]) == _name(now):
        return None
    known.append(now)
    if len(known) == 1:
        return None
    return (
        f"other kernels draw the noise from here on, {now}, than up to here, {known[-2]}: "
        "the figures will not be those of a run that was never cut"
    )


def _name(status: str) -> str:
    return status.partition(" (")[0]
