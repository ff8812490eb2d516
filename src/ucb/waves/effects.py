"""What a new wave does to what earlier ones lean on, told without any of their data."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ucb.bayes import gaussians
from ucb.waves.fixed import FixedWay
from ucb.waves.ongoing import OngoingWay
from ucb.waves.wave import Effect, Wave

WORDS = ((0.03, "hardly at all"), (0.1, "a little"), (0.25, "noticeably"), (float("inf"), "strongly"))


@torch.no_grad()
def effects_on_fixed(before: FixedWay, after: FixedWay, classes: Sequence[str], waves: Sequence[Wave]) -> list[Effect]:
    """Return how far the scores of each earlier wave's classes move, on examples like all those learnt before.

    The change of a class's weights is dw; over the features of all earlier examples, whose sum of squares the head
    keeps, its scores change by sqrt(dw^T (sum phi phi^T / N) dw) in root mean square. A score of 1 means yes, 0 no.
    """
    known = before.head.moments.shape[1]
    moved = after.solved.weights[:, :known].to(before.device) - before.solved.weights
    square = (moved * (before.head.gram @ moved)).sum(0) / before.head.counts.sum()
    numbers = {name: number for number, name in enumerate(classes)}
    effects = []
    for wave in waves:
        own = [numbers[name] for name in wave.examples]
        change = float(square[own].clamp_min(0).mean().sqrt())
        said = f"the scores of its classes move by {change:.3f} on what was learnt before (1 turns a yes into a no): "
        effects.append(Effect(wave.name, change, said + in_words(change)))
    return effects


@torch.no_grad()
def effects_on_ongoing(before: OngoingWay, after: OngoingWay, waves: Sequence[Wave]) -> list[Effect]:
    """Return how far the trunk, which all earlier waves lean on, moved: in units of each weight's sigma before.

    The mean of ((mu_new - mu_old) / sigma)^2 over all weights, each weighted by its importance 1 / sigma^2, as a root.
    Heads of earlier waves rest, so the change is the same for all of them.
    """
    new = dict(gaussians(after.method.net.trunk))
    total = weight = 0.0
    for name, old in gaussians(before.method.net.trunk):
        importance = old.sigma.double().square().reciprocal()
        moved = (new[name].mu.double() - old.mu.double()).square() * importance
        total += float((moved * importance).sum())
        weight += float(importance.sum())
    change = (total / max(weight, 1e-300)) ** 0.5
    said = f"the weights it leans on move by {change:.3f} of their own uncertainty, the important ones foremost: "
    return [Effect(wave.name, change, said + in_words(change / 10)) for wave in waves]


def in_words(change: float) -> str:
    """Say how much a change is."""
    return next(word for least, word in WORDS if change < least)
