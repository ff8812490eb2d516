"""Which examples of a wave are held out, to measure what was learnt before they are learnt too."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ucb.seeds import generator_for

SHARE = 0.1
MOST = 1000
ENOUGH = 5
"""A class with fewer examples than this holds out none."""


def held_out(labels: Sequence[str], seed: int, wave: int) -> Tensor:
    """Return a mask: about 10 % of each class, at least one where it has five, and 1,000 or so of a wave at most.

    With thousands of classes there are more: all classes give one away, so that none is at a disadvantage.
    """
    share = min(SHARE, MOST / max(1, len(labels)))
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for label, own in rows.items():
        some = max(1, round(share * len(own))) if len(own) >= ENOUGH else 0
        order = torch.randperm(len(own), generator=generator_for("held out", seed, wave, label))
        mask[torch.tensor(own)[order[:some]]] = True
    return mask


def asked_among(number: int, seed: int) -> Tensor:
    """Return which held-out examples are asked: all, or 1,000 by chance, since each costs more with more classes."""
    return torch.randperm(number, generator=generator_for("asked", seed))[:MOST].sort().values
