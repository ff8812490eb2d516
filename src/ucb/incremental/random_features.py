"""Random ReLU features of a trunk that comes ready: with z what the trunk shows, they are phi = relu(W z).

A linear head on them can tell apart what no linear head on z can. W is drawn from a seed and fits nothing, so no wave
enters it, and a model file holds the seed in its place.
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

from ucb.incremental.checked_file import FieldError, Fields, check_whole
from ucb.incremental.pretrained import GivenTrunk, join_trunk
from ucb.incremental.trunks import OWN, Given
from ucb.seeds import derive_seed

SHOWS_TRUNK = False
"""Whether the head of a new model sees z, too, beside its random features."""
LARGEST_FILE = 150_000_000
LARGEST_SUMS = 140_000_000
"""Bytes of half the head's products phi phi^T; the rest of a file is the column of each class, and little else."""
AT_A_TIME = 16
"""Rows of z that are multiplied together."""
WORDS = 1 << 16
"""How many whole numbers have 16 bits."""


class RandomFeatures(GivenTrunk):
    """``number`` random features of what ``trunk`` shows, made from ``seed``; ``beside`` them may stand z itself.

    How a product is summed up depends on the machine and, for some rows, on their place. In double precision nothing
    of that is left once it is rounded.
    """

    at_a_time = AT_A_TIME
    directions: Tensor

    def __init__(self, trunk: GivenTrunk, number: int, seed: int, beside: bool | None = None) -> None:
        super().__init__()
        self.trunk, self.number = trunk, number
        self.beside = beside = SHOWS_TRUNK if beside is None else beside
        self.features = number + (trunk.features if beside else 0)
        refuse_too_many(number, self.features - number)
        self.about = f"{trunk.about}; {number:,} random features of it"
        self.facts = {"kind": "random", "number": number, "seed": seed, "beside": beside, "of": trunk.facts}
        self.noted = trunk.noted
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
        combined = (x.to(self.precision) @ self.directions).relu_().float()
        return torch.cat([x, combined], 1) if self.beside else combined


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
    most = (math.isqrt(1 + LARGEST_SUMS) - 1) // 2 - 1 - others  # n (n + 1) / 2 sums of 8 bytes; one feature is 1
    if number > most:
        raise ValueError(
            f"{number:,} random features would make the model's file larger than {LARGEST_FILE // 10**6} MB: "
            f"{max(most, 0):,} are the most"
        )


def check_features(features: int, method: str, trunk: str | nn.Module | None) -> int:
    """Return a number of random features, if a model can have them."""
    if method != "fixed":
        raise ValueError(f"random features go with the method fixed; {method} trains its own net")
    if trunk == OWN:
        raise ValueError(
            "random features go with a trunk that comes ready, not with one that the first wave makes: name it"
        )
    check_whole("features", features, 1)
    refuse_too_many(features)
    return features


def join_random(facts: Fields, tensors: Mapping[str, Tensor], shape: Sequence[int], given: Given) -> RandomFeatures:
    """Return the random features that a model file describes, on the trunk that it describes."""
    facts.only("kind", "number", "seed", "beside", "of")
    number, seed, beside = facts.whole("number", 1), facts.whole("seed"), facts.get("beside")
    if not isinstance(beside, bool):
        raise FieldError("way.trunk.beside is neither true nor false")
    refuse_too_many(number)
    if isinstance(given.trunk, RandomFeatures):
        given = replace(given, trunk=given.trunk.trunk)
    trunk = join_trunk(facts.fields("of"), tensors, shape, given)
    return RandomFeatures(trunk, number, seed, beside)
