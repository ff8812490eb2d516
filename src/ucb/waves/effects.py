"""What a new wave does to what earlier ones lean on, told without any of their data."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ucb.bayes import gaussians
from ucb.waves.fixed import FixedWay
from ucb.waves.ongoing import OngoingWay
from ucb.waves.wave import Effect, Wave

WORDS = ((0.03, "hardly at all"), (0.1, "a little"), (0.25, "noticeably"), (float("inf"), "strongly"))
ON_SCORES = "how far scores of its classes move on unseen examples like its own, where 1 turns a yes into a no"
ON_WEIGHTS = "how far the weights it leans on move, in units of their own uncertainty, the important ones foremost"
LEAST_FREE = 1e-6
"""What the leverage of an example leaves of 1 at least: below it there is only rounding."""


@torch.no_grad()
def effects_on_fixed(before: FixedWay, after: FixedWay, classes: Sequence[str], waves: Sequence[Wave]) -> list[Effect]:
    """Return how far the scores of each earlier wave's classes are expected to move on unseen examples.

    Unseen means: like those learnt before, but not among them. The scores of the learnt ones themselves hardly move
    where there are few of them: the weights fit each of them. So each is left out in turn, by a closed form. Without an
    example whose leverage phi^T A^-1 phi is h, what its targets are above its scores, y - w^T phi, becomes 1 / (1 - h)
    times as large; the change of that, in root mean square, is the change of a score. With the mean leverage of all
    examples in place of each one's own the sums that the head keeps suffice. A score of 1 means yes, 0 no.

    It is an estimate, and rather low, since leverages differ: of digits, 5 to 500 a class, unseen ones moved by 0.7 to
    4 times as much, mostly 1.5.
    """
    head, known = before.head, before.head.moments.shape[1]
    then, now = (1 / max(1 - way.solved.usual_variance, LEAST_FREE) for way in (before, after))
    weights = now * after.solved.weights[:, :known].to(before.device) - then * before.solved.weights
    of_targets = now - then
    square = (weights * (head.gram @ weights)).sum(0) - 2 * of_targets * (weights * head.moments).sum(0)
    square = (square + of_targets**2 * head.counts) / head.counts.sum()
    numbers = {name: number for number, name in enumerate(classes)}
    effects = []
    for wave in waves:
        own = [numbers[name] for name in wave.examples]
        change = float(square[own].clamp_min(0).mean().sqrt())
        effects.append(Effect(wave.name, change, ON_SCORES, in_words(change)))
    return effects


@torch.no_grad()
def effects_on_ongoing(before: OngoingWay, after: OngoingWay, waves: Sequence[Wave]) -> list[Effect]:
    """Return how far the trunk, which all earlier waves lean on, moved: in units of each weight's sigma before.

    The mean of ((mu_new - mu_old) / sigma)^2 over all weights, each weighted by its importance 1 / sigma^2, as a root.
    It is the same for all of them: heads rest, but for the one whose classes the new wave brings again, and that one
    learns from more data.
    """
    new = dict(gaussians(after.method.net.trunk))
    total = weight = 0.0
    for name, old in gaussians(before.method.net.trunk):
        importance = old.sigma.double().square().reciprocal()
        moved = (new[name].mu.double() - old.mu.double()).square() * importance
        total += float((moved * importance).sum())
        weight += float(importance.sum())
    change = (total / max(weight, 1e-300)) ** 0.5
    return [Effect(wave.name, change, ON_WEIGHTS, in_words(change / 10)) for wave in waves]


def in_words(change: float) -> str:
    """Say how much a change is."""
    return next(word for least, word in WORDS if change < least)
