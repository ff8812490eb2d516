"""Random ReLU features beside those of a trunk that comes ready: with z what the trunk shows, phi = (z, relu(W z) / 2).

A linear head on them can tell apart what no linear head on z can. W is drawn from a seed and fits nothing, so no wave
enters it, and a model file holds the seed in its place. At half their size the ridge holds them back more than z:
where there are few examples they then do no harm, and where there are many the ridge is small, and they help.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ucb.incremental.checked_file import Fields, check_whole
from ucb.incremental.pretrained import GivenTrunk, join_trunk
from ucb.incremental.trunks import OWN, Given
from ucb.seeds import derive_seed

USUAL, ENOUGH = 4000, 1000
"""How many there are beside a pretrained trunk's own, unless another number is wanted, and how many examples the first
wave must have: with fewer there are none, so that the model of a few photographs stays small and quick."""
SIZE = 0.5
"""What they are multiplied by."""
LARGEST_FILE = 150_000_000
LARGEST_SUMS = 140_000_000
"""Bytes of half the head's products phi phi^T; the rest of a file is the column of each class, and little else."""
AT_A_TIME = 16
"""Rows of z that are multiplied together."""
WORDS = 1 << 16
"""How many whole numbers have 16 bits."""


class RandomFeatures(GivenTrunk):
    """What ``trunk`` shows, and ``number`` random features of that, made from ``seed``.

    How a product is summed up depends on the machine and, for some rows, on their place. In double precision nothing
    of that is left once it is rounded.
    """

    at_a_time = AT_A_TIME
    directions: Tensor

    def __init__(self, trunk: GivenTrunk, number: int, seed: int) -> None:
        super().__init__()
        self.trunk, self.number = trunk, number
        self.features = trunk.features + number
        refuse_too_many(number, trunk.features)
        self.about = f"{trunk.about}; {number:,} random features of it"
        self.facts = {"kind": "random", "number": number, "seed": seed, "of": trunk.facts}
        self.noted, self.usual_ridge = trunk.noted, trunk.usual_ridge
        directions = torch.from_numpy(draw_directions(trunk.features, number, seed))
        self.register_buffer("directions", directions, persistent=False)

    @property
    def size(self) -> int:
        """How many numbers the trunk below has; those of its own are made anew."""
        return self.trunk.size

    def stored(self) -> dict[str, Tensor]:
        """Return what a model file holds of the trunk below: nothing else is needed."""
        return self.trunk.stored()

    def embed(self) -> None:
        """Let a model file hold the weights of the trunk below."""
        self.trunk.embed()
        self.noted = self.trunk.noted

    @property
    def origin(self) -> str | nn.Module:
        """What the trunk below is called."""
        return self.trunk.origin

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of examples, each the same in whatever batch it comes."""
        return super().forward(self.trunk(x))

    def show(self, x: Tensor) -> Tensor:
        """Return the features of one full batch of z."""
        combined = (x.to(self.precision) @ self.directions).relu_().mul_(SIZE).float()
        return torch.cat([x, combined], 1)


@lru_cache(1)  # a file is read again when it is written
def draw_directions(inputs: int, number: int, seed: int) -> npt.NDArray[np.float64]:
    """Return W transposed, with entries of mean 0 and variance 1 / inputs: the same on every machine, to the last bit.

    An entry is the sum of the four whole numbers of 16 bits in one draw of 64, nearly normal, shifted and divided once.
    Functions such as the logarithm, of which libraries differ in last bits, are not asked, and numpy keeps the bits of
    this generator the same in all its versions.
    """
    draws = np.random.PCG64(derive_seed("random features", seed)).random_raw(inputs * number)
    words = draws.view(np.uint16).reshape(-1, 4)
    total = words[:, 0].astype(np.float64)
    for place in 1, 2, 3:
        total += words[:, place]
    total -= 2 * (WORDS - 1)
    total /= math.sqrt(4 * (WORDS**2 - 1) / 12 * inputs)
    return total.reshape(inputs, number)


def refuse_too_many(number: int, others: int = 0) -> None:
    """Refuse more random features, beside ``others``, than a model file has room for."""
    most = count_most(others)
    if number > most:
        raise ValueError(
            f"{number:,} random features would make the model's file larger than {LARGEST_FILE // 10**6} MB: "
            f"{max(most, 0):,} are the most"
        )


def choose_number(examples: int, others: int) -> int:
    """Return how many random features a model begins with whose first wave has so many examples.

    Its trunk has ``others`` of its own.
    """
    return min(USUAL, max(count_most(others), 0)) if examples >= ENOUGH else 0


def count_most(others: int = 0) -> int:
    """Return how many random features a model file has room for beside others."""
    return (math.isqrt(1 + LARGEST_SUMS) - 1) // 2 - 1 - others  # n (n + 1) / 2 sums of 8 bytes; one feature is 1


def check_features(features: int, method: str, trunk: str | nn.Module | None) -> int:
    """Return a number of random features, if a model can have them."""
    if method != "fixed":
        raise ValueError(f"random features go with the method fixed; {method} trains its own net")
    if trunk == OWN and features:
        raise ValueError(
            "random features go with a trunk that comes ready, not with one that the first wave makes: name it"
        )
    check_whole("features", features)
    refuse_too_many(features)
    return features


def join_random(facts: Fields, tensors: Mapping[str, Tensor], shape: Sequence[int], given: Given) -> RandomFeatures:
    """Return the random features that a model file describes, on the trunk that it describes."""
    facts.only("kind", "number", "seed", "of")
    number, seed = facts.whole("number", 1), facts.whole("seed")
    refuse_too_many(number)
    if isinstance(given.trunk, RandomFeatures):
        given = replace(given, trunk=given.trunk.trunk)
    trunk = join_trunk(facts.fields("of"), tensors, shape, given)
    return RandomFeatures(trunk, number, seed)
