"""What a model notes of each wave that it has learnt: figures and sums, and none of its data.

An example is known by a hash of its content. Of all hashes of a class the model keeps one sum, in whole numbers of 64
bits, where overflow just wraps around: it does not depend on the order of the examples, and an example that is unlearnt
is taken out of it. Two waves are the same if they have the same counts and sums of the same classes. Nothing can be
read off a hash.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ucb.incremental.calibration import HeldOutStatistics, no_statistics

if TYPE_CHECKING:
    from ucb.bayes.conjugate import ConjugateHead

CHANGES = ((0.03, "hardly at all"), (0.1, "a little"), (0.25, "noticeably"), (float("inf"), "strongly"))
LONGEST_NAME = 200
Choices = tuple[tuple[int, int], ...]
"""Numbers of classes, as ranges: the first of each, and the one after its last."""


@dataclass(frozen=True)
class Effect:
    """What a new wave did to what an earlier one leans on."""

    wave: str
    change: float
    """With a frozen trunk: how far scores of its classes move on unseen examples, estimated without any. With ucb-ng:
    how far the trunk's weights moved, in units of their sigma."""
    meaning: str
    """What is measured, in words."""
    words: str
    """How much that is."""

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.meaning}: {self.change:.3f}, {self.words}"


@dataclass(frozen=True)
class Wave:
    """What a model notes of a wave that it has learnt."""

    name: str
    examples: dict[str, int]
    """How many of each class were learnt, the held-out ones among them where the learner uses them."""
    held_out: dict[str, tuple[int, int]]
    """For each class, how many were held out and how many of them were judged right, with no wave named."""
    fingerprint: str = ""
    """The hash of its content in files of before version 3; empty in others."""
    prints: dict[str, int] = field(default_factory=dict)
    """For each class, the sum of the hashes of its examples."""
    choices: Choices = ()
    """The classes that its held-out examples could be given."""
    repeated: float = 0.0
    """How many of its examples seem to have been learnt before."""
    date: str = ""
    """When it was learnt."""
    largest_effect: tuple[str, float] | None = None
    """The earlier wave that felt it most, and how much."""
    statistics: HeldOutStatistics = field(default_factory=no_statistics, compare=False, repr=False)
    """What its held-out examples said about probabilities and doubts."""
    sums: ConjugateHead | None = field(default=None, compare=False, repr=False)
    """Its own share of the head's sums, with an output for each of ``examples``, where it is kept."""

    @property
    def accuracy(self) -> float | None:
        """The share of held-out examples that was judged right when the wave was learnt, in percent."""
        return percent(self.held_out.values())

    @property
    def identity(self) -> str:
        """What tells its content from that of others."""
        return self.fingerprint or identify(self.prints, self.examples)


def percent(counts: Iterable[tuple[int, int]]) -> float | None:
    """Return the share of right answers, in percent, of pairs of how many were asked and how many were right."""
    asked, right = map(sum, zip((0, 0), *counts, strict=True))
    return 100 * right / asked if asked else None


def describe_change(change: float) -> str:
    """Say how much a change is."""
    return next(word for least, word in CHANGES if change < least)


def choose_name(waves: Sequence[Wave], name: str | None) -> str:
    """Return the name of a new wave: the one that is wanted, if it can be had, or the next number."""
    taken = {wave.name for wave in waves}
    if name is None:
        return next(free for n in count(len(taken) + 1) if (free := f"wave {n}") not in taken)
    if not name.strip() or len(name) > LONGEST_NAME:
        raise ValueError(f"a wave's name must have 1 to {LONGEST_NAME} characters, not {len(name)}")
    if name in taken:
        raise ValueError(f"there is a wave {name!r} already: choose another name")
    return name


def say_date() -> str:
    """Return the present time (UTC); the variable SOURCE_DATE_EPOCH stands for it where files must not differ."""
    now = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def hash_examples(x: Tensor, labels: Sequence[str] | None = None) -> Tensor:
    """Return the hash of the content of each example as a number, with ``labels`` of its content and class."""
    keys = {label: hashlib.sha256(label.encode("utf-8", "surrogatepass")).digest() for label in set(labels or ())}
    rows = x.cpu().contiguous().numpy()
    own = [b""] * len(rows) if labels is None else [keys[label] for label in labels]
    hashes = (
        hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest() for row, key in zip(rows, own, strict=True)
    )
    return torch.from_numpy(np.frombuffer(b"".join(hashes), np.int64).copy())


def sum_hashes(hashes: Tensor, classes: Tensor, number: int) -> Tensor:
    """Return the sum of the hashes of each class's examples, for ``number`` classes."""
    return torch.zeros(number, dtype=torch.int64).index_add_(0, classes, hashes)


def wrap(number: int) -> int:
    """Return a whole number as 64 bits hold it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def identify(prints: Mapping[str, int], examples: Mapping[str, int]) -> str:
    """Return what tells a wave's content from that of others; nothing where its hashes are not known."""
    if prints.keys() != examples.keys():
        return ""
    facts = sorted((name, number, prints[name]) for name, number in examples.items())
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()


def hash_wave(hashes: Tensor) -> str:
    """Return the fingerprint of a wave in files of before version 3, from hashes of its contents and classes."""
    return hashlib.sha256(hashes.sort().values.numpy().tobytes()).hexdigest()[:32]


def to_choices(numbers: Iterable[int]) -> Choices:
    """Return numbers of classes as ranges."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)


def list_choices(choices: Choices) -> list[int]:
    """Return the numbers of classes in ranges."""
    return [number for first, last in choices for number in range(first, last)]


def count_choices(choices: Choices) -> int:
    """Return how many classes are in ranges."""
    return sum(last - first for first, last in choices)
