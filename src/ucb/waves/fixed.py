"""The fixed way: a trunk that stays, and an exact Bayesian head whose sums are all it keeps of the data."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ucb.bayes.conjugate import ConjugateHead
from ucb.seeds import generator_for
from ucb.waves.opinion import Opinion
from ucb.waves.ridge import LEAST_NOISE, best_ridge
from ucb.waves.trunks import ImageTrunk, RowTrunk

PAIRS = 16
"""Pairs of opposite samples of the head's weights: their mean is the mean."""
FAINTEST = 1e-6
"""The share of the usual |phi|^2 that is nothing at all."""
BLOCKS = 8
"""Pieces in which a triangular matrix is multiplied."""


class Solved(NamedTuple):
    """What the sums say, ready for many questions."""

    weights: Tensor
    inverse_factor: Tensor
    noise: Tensor
    usual_variance: float
    usual_energy: float
    """The mean of |phi|^2 over what was learnt."""
    balance: Tensor
    """What each score is multiplied by before classes are compared: see ``_balance``."""
    determined: float
    """How many of the weights of an output the data have determined: the trace of A^-1 sum phi phi^T."""


class FixedWay:
    """Trunk and head. Learning adds to the head's sums; ``settle`` ends it."""

    name = "fixed"

    def __init__(self, trunk: ImageTrunk | RowTrunk, classes: int, ridge: float = 0.1) -> None:
        self.trunk = trunk
        self.head = ConjugateHead(trunk.features, classes, ridge)
        self.repeated = 0.0
        """How many of the examples were learnt before: they count in the sums, and are no new evidence."""
        self._solved: Solved | None = None

    def copied(self) -> FixedWay:
        """Return a twin that can learn while this one stays as it is."""
        twin = copy.copy(self)
        twin.trunk, twin.head, twin._solved = copy.deepcopy(self.trunk), copy.deepcopy(self.head), None
        return twin

    def to(self, device: torch.device) -> None:
        """Go to a device."""
        self.trunk.to(device)
        self.head.to(device)
        self._solved = None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.head.gram.device

    @property
    def numbers_a_row(self) -> int:
        """About how many numbers are at work for an opinion on one example's features."""
        return self.trunk.features + 2 * PAIRS * len(self.head.counts)

    def add(self, features: Tensor, classes: Tensor) -> None:
        """Learn from examples' features."""
        self.head.add(features, classes)
        self._solved = None

    def without(self, features: Tensor, classes: Tensor, times: Tensor) -> FixedWay:
        """Return the way as it would be if it had learnt each of these examples so many times less."""
        if not int(times.sum()):
            return self
        twin, times = self.copied(), times.to(self.device)
        twin.head.add(features.repeat_interleave(times, 0), classes.repeat_interleave(times), -1)
        return twin

    def features(self, x: Tensor) -> Tensor:
        """Return what the trunk shows of examples."""
        found: Tensor = self.trunk(x.to(self.device))
        return found

    @property
    def worth(self) -> float:
        """How many examples the learnt ones are worth."""
        return max(float(self.head.counts.sum()) - self.repeated, 1.0)

    def settle(self) -> None:
        """Choose the ridge by the evidence of all that was learnt."""
        self.head.set_ridge(best_ridge(self.head, self.worth))
        self._solved = None

    @property
    def solved(self) -> Solved:
        """The posterior; it is worked out once after each change."""
        if self._solved is None:
            head = self.head
            size = len(head.gram)
            eye = torch.eye(size, dtype=head.gram.dtype, device=self.device)
            factor, failed = torch.linalg.cholesky_ex(head.gram + head.ridge * eye)
            if int(failed):
                raise RuntimeError("the model is damaged: its sums are not those of any data")
            inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
            determined = size - head.ridge * float(inverse.square().sum())
            usual = max(determined, 1e-9) / self.worth
            inverse *= (max(float(head.counts.sum()), 1.0) / self.worth) ** 0.5
            weights = torch.cholesky_solve(head.moments, factor)
            unexplained = head.counts - (head.moments * weights).sum(0)
            noise = (unexplained / head.counts.sum().clamp_min(1)).clamp_min(LEAST_NOISE).float()
            energy = float(head.gram.diagonal()[:-1].sum() / head.counts.sum().clamp_min(1))
            balance = _balance(head.counts)
            self._solved = Solved(weights, inverse.float(), noise, usual, max(energy, 1e-30), balance, determined)
        return self._solved

    @torch.no_grad()
    def opinion(self, x: Tensor) -> Opinion:
        """Return logits under samples of the head, and log(phi^T A^-1 phi / its mean over what was learnt)."""
        return self.opinion_of(self.features(x))

    @torch.no_grad()
    def opinion_of(self, features: Tensor) -> Opinion:
        """Return the opinion on features."""
        solved = self.solved
        mean, variance = self._scores(features)
        spread = (variance[:, None] * solved.noise).sqrt()
        logits = (mean + spread * noise_of_samples(mean.shape[1]).to(mean)) * solved.balance.to(mean)
        energy = features.double().square().sum(1) / solved.usual_energy
        strength = (energy + FAINTEST).log().float() / 2
        return Opinion(logits, (variance / solved.usual_variance).clamp_min(1e-12).log(), strength)

    @torch.no_grad()
    def surprise(self, features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return of each example phi^T A^-1 phi, and the mean square that is left of its targets in units of the noise.

        A class that is not known yet has no output: all targets of its examples are 0.
        """
        mean, variance = self._scores(features)
        target = classes[:, None] == torch.arange(mean.shape[1], device=mean.device)
        return variance, ((target.float() - mean).square() / self.solved.noise).mean(1)

    def _scores(self, features: Tensor) -> tuple[Tensor, Tensor]:
        phi = torch.cat([features, features.new_ones(len(features), 1)], 1)
        return (phi.double() @ self.solved.weights).float(), _length_squared(phi, self.solved.inverse_factor)

    def certainty(self) -> dict[str, Any]:
        """Say how sure each layer is, as sigma now over sigma before anything was learnt, and what room is left."""
        solved, size = self.solved, len(self.head.gram)
        left = (size - solved.determined) / size
        return {
            "layers": [
                {"layer": "trunk", "weights": _size_of(self.trunk), "sigma": None, "note": "made once, fixed"},
                {
                    "layer": "head",
                    "weights": self.head.moments.numel(),
                    "sigma": max(0.0, left) ** 0.5,
                    "note": f"ridge {self.head.ridge:g}",
                },
            ],
            "capacity_left": min(1.0, max(0.0, left)),
        }


def _balance(counts: Tensor) -> Tensor:
    """Return sqrt(mean count / count) of each class: 1 where all have equally many examples.

    What a score of 1 or 0 is regressed on includes how frequent the class is, so that a rare one would never be the
    answer. The noise of a score grows with the root of its class's count: divided by it, all have the same. Of the
    powers of the count that benchmarks/rare_classes.py tries on held-out images, 0.5 and 0.6 are best.
    """
    known = counts[counts > 0]
    return torch.where(counts > 0, (known.mean() / counts.clamp_min(1)).sqrt(), 1.0)


def noise_of_samples(classes: int) -> Tensor:
    """Return the noise [samples, 1, classes] of the samples in an answer, the same in every one."""
    noise = torch.randn(PAIRS, 1, classes, generator=generator_for("opinion"))
    return torch.cat([noise, -noise])


def blocks_of(size: int) -> list[tuple[int, int]]:
    """Return where the blocks of rows of a triangular matrix begin and end."""
    rows = -(-size // BLOCKS)
    return [(first, min(first + rows, size)) for first in range(0, size, rows)]


def _length_squared(rows: Tensor, triangle: Tensor) -> Tensor:
    """Return |triangle @ row|^2 of each row, in blocks: what is above the triangle's diagonal is 0 and left out."""
    total = rows.new_zeros(len(rows))
    for first, last in blocks_of(len(triangle)):
        total += (rows[:, :last] @ triangle[first:last, :last].T).square_().sum(1)
    return total


def _size_of(trunk: ImageTrunk | RowTrunk) -> int:
    return sum(tensor.numel() for tensor in trunk.state_dict().values())
