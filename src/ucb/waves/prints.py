"""Examples as numbers of 64 bits: by them copies inside a wave are known, and a wave that comes again.

A number is a hash of an example's content and class. Nothing can be read off it, and of a wave the model keeps but one
hash of all its numbers, whatever their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class RepeatedWaveError(ValueError):
    """A wave that the model has learnt before."""


def prints(x: Tensor, labels: Sequence[str]) -> Tensor:
    """Return the number of each example."""
    keys = {label: hashlib.sha256(label.encode("utf-8", "surrogatepass")).digest() for label in set(labels)}
    hashes = (
        hashlib.blake2b(row.tobytes(), digest_size=8, key=keys[label]).digest()
        for row, label in zip(x.cpu().contiguous().numpy(), labels, strict=True)
    )
    return torch.from_numpy(np.frombuffer(b"".join(hashes), np.int64).copy())


def stamp(found: Tensor) -> str:
    """Return the hash of a wave's numbers, in whatever order its examples came."""
    return hashlib.sha256(found.sort().values.numpy().tobytes()).hexdigest()[:32]


class Copies:
    """Which examples of a wave are copies of others in it.

    Where most examples are copies of held-out ones, the data are like that, as in a table with few different rows: each
    copy is an example in its own right then, and nothing is made of it.
    """

    def __init__(self, learnt: Tensor, held_out: Tensor) -> None:
        self.every = torch.cat([learnt, held_out])
        _, group = self.every.unique(return_inverse=True)
        among_learnt = torch.bincount(group[: len(learnt)], minlength=len(self.every))
        self.of_held_out = among_learnt[group[len(learnt) :]]
        """How many copies of each held-out example are among the learnt ones."""
        self.different = len(group.unique()) / len(self.every)
        """The share that is left if each stands there once."""
        if 2 * int(among_learnt[group[len(learnt) :].unique()].sum()) > len(learnt):
            self.of_held_out, self.different = torch.zeros_like(self.of_held_out), 1.0
