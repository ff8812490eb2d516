"""From raw predictions to probabilities that mean what they say, and to "unsure", by held-out examples of each wave.

Three statistics of fixed size are kept of each wave, so that later waves refine them without earlier data, and that a
wave which is unlearnt takes its own away:

- for each of a ladder of scales, the sum of the held-out NLL with logits times that scale; the least wins.
- mean and variance of three signs of doubt over held-out examples: log(entropy + 1e-4); the novelty, which is the log
  of phi^T A^-1 phi relative to what it is on average for an unseen example like the learnt ones; and the strength, the
  log of |phi| relative to its mean.
- a histogram of the unsureness u = sqrt(max(0, z_entropy)^2 + max(0, z_novelty)^2 + max(0, |z_strength| - 2)^2), z the
  signs standardised by these moments. An example is called unsure above the u that 5 % of the held-out ones exceed.

Held-out examples of an earlier wave were measured against fewer classes: they count (classes then / classes now) times.
A little prior knowledge stands in where there are hardly any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ucb.bayes.predict import Prediction, from_logits

ROWS = 512
VALUES = 1 << 23
"""Rows that are predicted together, and numbers that may be at work for them: the fewer fit, the larger each row is."""
SCALES = tuple(10 ** (step / 16) for step in range(-8, 49))
"""The factors from scores to logits that are tried: 0.3 to 1000."""
USUAL_SCALE, DOUBT_OF_SCALE = 10.0, 1.0
"""What is believed of the scale before any example: its middle, and the standard deviation of its logarithm."""
BINS, WIDEST = 400, 20.0
UNSURE = 0.05
"""The share of held-out examples that is called unsure."""
SMALLEST_ENTROPY = 1e-4
PRIOR_EXAMPLES = 5.0
PRIOR_MOMENTS = ((-2.5, 2.0), (0.3, 0.5), (0.0, 0.3))
"""Mean and standard deviation of the three signs before any example."""
ERRORS_TO_BE_SURE = 2.0
"""Standard errors that the share of familiar examples must be above 0 to count."""
USUAL_STRENGTH = 2.0
"""Standard deviations that the strength may differ from its mean, either way, before it counts as a sign of doubt."""


@dataclass(frozen=True)
class RawPrediction:
    """Logits under samples of the weights, before calibration, and how unlike all that was learnt an example is.

    ``logits`` [samples, rows, classes] have a scale that calibration sets; ``novelty`` [rows] is 0 for an example as
    usual as those that were learnt, and the log of how many times less sure the weights make it where it is not.
    ``strength`` [rows] is the log of how much there is to see in it, relative to what was learnt; 0 where that is not
    known. An empty image has nothing new, and nothing at all.
    """

    logits: Tensor
    novelty: Tensor
    strength: Tensor


@dataclass(frozen=True)
class RawPredictionBatches:
    """Raw predictions of examples whose classes are known, a batch at a time, as often as is needed."""

    predict: Callable[[Tensor], RawPrediction]
    x: Tensor
    target: Tensor
    values_per_row: int

    def __iter__(self) -> Iterator[tuple[RawPrediction, Tensor]]:
        """Yield the predictions of a batch, and its classes."""
        rows = rows_per_batch(self.values_per_row)
        for x, target in zip(self.x.split(rows), self.target.split(rows), strict=True):
            if len(target):
                yield self.predict(x), target


def rows_per_batch(values_per_row: int) -> int:
    """Return how many rows to predict together where each of them takes so many numbers."""
    return max(1, min(ROWS, VALUES // values_per_row))


class CalibratedPrediction(NamedTuple):
    """What a calibrated model says of each row."""

    prediction: Prediction
    unsureness: Tensor
    unsure: Tensor


class HeldOutStatistics(NamedTuple):
    """What held-out examples of a wave said, as sums over them."""

    nll: Tensor
    """With the logits times each of the scales."""
    moments: Tensor
    """For each sign of doubt: how many, their sum, the sum of their squares."""
    histogram: Tensor
    """Of the unsureness."""


def no_statistics() -> HeldOutStatistics:
    """Return what no examples say."""
    nll, moments = torch.zeros(len(SCALES)).double(), torch.zeros(len(PRIOR_MOMENTS), 3).double()
    return HeldOutStatistics(nll, moments, torch.zeros(BINS))


class ScoreCalibration:
    """The statistics of all waves, each with the number of classes that it could choose from, and what follows."""

    def __init__(self, waves: Sequence[tuple[HeldOutStatistics, int]] = (), classes: int = 0) -> None:
        weights = torch.tensor([min(1.0, then / max(classes, 1)) for _, then in waves], dtype=torch.float64)
        every = zip(*([each for each, _ in waves] or [no_statistics()]), strict=True)
        sums = (torch.stack(each).double().flatten(1) for each in every)
        zeros = torch.zeros(1, dtype=torch.float64)
        nll, moments, histogram = ((weights if waves else zeros) @ each for each in sums)
        self.nll, self.moments, self.histogram = nll, moments.view(-1, 3), histogram

    @property
    def scale(self) -> float:
        """The factor from scores to logits with the least held-out NLL."""
        logs = torch.tensor(SCALES, dtype=torch.float64).log()
        prior = (logs - math.log(USUAL_SCALE)).square() / (2 * DOUBT_OF_SCALE**2)
        return SCALES[int((self.nll + prior).argmin())]

    @property
    def threshold(self) -> float:
        """The unsureness that 5 % of the held-out examples exceed."""
        edges = torch.linspace(0, WIDEST, BINS + 1, dtype=torch.float64)
        survival = (-edges.square() / 2).exp()
        counts = self.histogram + PRIOR_EXAMPLES * (survival[:-1] - survival[1:])
        beyond = counts.flip(0).cumsum(0).flip(0) / counts.sum()
        return float(edges[1:][beyond <= UNSURE][0]) if bool((beyond <= UNSURE).any()) else WIDEST

    def update(
        self, held_out: Iterable[tuple[RawPrediction, Tensor]], weight: float = 1.0
    ) -> tuple[Tensor, HeldOutStatistics]:
        """Take in held-out examples of a wave and their classes, in batches.

        Return the classes that they are given, and what they say. Each counts ``weight`` times: the share of the wave
        that was new, since of what was learnt before a model is surer than of anything new. The batches are gone
        through twice: what an example is given depends on the scale, and that on all of them.
        """
        own = no_statistics()
        for raw, target in held_out:
            for place, scale in enumerate(SCALES):
                p = (raw.logits * scale).softmax(-1).mean(0).double()
                true = p.gather(1, target[:, None]).clamp_min(1e-12)
                own.nll[place] -= weight * float(true.log().sum())
        self.nll += own.nll
        scale = self.scale
        found, given = [torch.zeros(0, len(PRIOR_MOMENTS), dtype=torch.float64)], [torch.zeros(0, dtype=torch.int64)]
        for raw, _ in held_out:
            prediction = from_logits(raw.logits * scale)
            found.append(_signs(prediction, raw).cpu())
            given.append(prediction.label.cpu())
        signs = torch.cat(found)
        own.moments.copy_(weight * torch.stack([torch.ones_like(signs), signs, signs.square()], -1).sum(0))
        self.moments += own.moments
        unsureness = self._unsureness(signs).clamp(0, WIDEST)
        own.histogram.copy_(weight * torch.histc(unsureness, BINS, 0, WIDEST))
        self.histogram += own.histogram
        return torch.cat(given), own

    def log_entropy(self, raw: RawPrediction) -> Tensor:
        """Return the log entropy of each calibrated prediction."""
        return _signs(from_logits(raw.logits * self.scale), raw)[:, 0].cpu()

    def calibrate(self, raw: RawPrediction) -> CalibratedPrediction:
        """Return class probabilities, and which rows the model is unsure of."""
        prediction = from_logits(raw.logits * self.scale)
        u = self._unsureness(_signs(prediction, raw))
        return CalibratedPrediction(prediction, u, u > self.threshold)

    def _unsureness(self, signs: Tensor) -> Tensor:
        prior = torch.tensor([[1.0, mean, mean**2 + std**2] for mean, std in PRIOR_MOMENTS], dtype=torch.float64)
        count, total, squares = (self.moments + PRIOR_EXAMPLES * prior).to(signs.device).unbind(1)
        mean = total / count
        spread = (squares / count - mean.square()).clamp_min(1e-6).sqrt()
        entropy, novelty, strength = ((signs - mean) / spread).unbind(1)
        doubts = torch.stack([entropy, novelty, strength.abs() - USUAL_STRENGTH], 1)
        return doubts.clamp_min(0).square().sum(1).sqrt()


def _signs(prediction: Prediction, raw: RawPrediction) -> Tensor:
    entropy = (prediction.entropy.double() + SMALLEST_ENTROPY).log()
    return torch.stack([entropy, raw.novelty.double(), raw.strength.double()], 1)
