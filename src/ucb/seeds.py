"""Random numbers that depend on a run's seed and on what they are for, and on nothing else."""

from __future__ import annotations

import hashlib

import torch


def derive_seed(*parts: object) -> int:
    """Return a seed for one purpose: the same parts give the same seed, other parts an unrelated one."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(*parts: object, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a random generator for one purpose: PyTorch's global one is neither read nor moved."""
    return torch.Generator(device).manual_seed(derive_seed(*parts))
