"""How strongly a head's weights are drawn to 0, chosen from the head's sums alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ucb.bayes.conjugate import ConjugateHead
from ucb.seeds import generator_for

RIDGES = tuple(math.pow(10, step / 2) for step in range(-8, 9))
"""The ridges that are tried: 1e-4 to 1e4, two in each power of ten."""
LEAST_NOISE = 1e-3
"""Variance that outputs have at least: a handful of examples can be met exactly, which proves nothing."""
PROBES = 64
"""Random signs for a trace."""


def factorise(head: ConjugateHead, ridge: float) -> Tensor | None:
    """Return the Cholesky factor of A = ridge + sum phi phi^T, or None where rounding leaves none."""
    whole = head.gram.clone()
    whole.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(whole)
    return None if int(failed) else factor


def log_evidence(head: ConjugateHead, ridge: float, worth: float | None = None) -> float:
    """Return the log of the marginal likelihood, but for a constant; -inf where rounding leaves no posterior.

    With N examples, D weights an output, A = ridge + sum phi phi^T and R_c the squares that output c leaves unexplained
    (those of the weights included), it is at the best noise s_c^2 = R_c / N
    -N/2 sum_c log(R_c / N) - C/2 (log|A| - D log ridge). No data are needed, only the head's sums.

    An example that comes again is met exactly and would prove that there is no noise. So the first N is what the
    examples are ``worth``, where a repeated one adds nothing: it is the likelihood raised to the power worth / N. With
    everything learnt twice the evidence is then that of learning it once, at twice the ridge: the same weights.
    """
    examples = float(head.gram[-1, -1])
    if (factor := factorise(head, ridge)) is None:
        return -math.inf
    weights = torch.cholesky_solve(head.moments, factor)
    left = (head.counts - (head.moments * weights).sum(0)).clamp_min(LEAST_NOISE * max(examples, 1.0))
    fit = -(examples if worth is None else worth) / 2 * float((left / max(examples, 1.0)).log().sum())
    volume = 2 * float(factor.diagonal().log().sum()) - len(factor) * math.log(ridge)
    return fit - len(head.counts) / 2 * volume


def cross_validated_fit(head: ConjugateHead, ridge: float, worth: float | None = None) -> float:
    """Return -log of the mean square that examples left out in turn would leave unexplained, by their mean leverage.

    That is (RSS / N) / (1 - df / N)^2 with df the trace of A^-1 sum phi phi^T, here over all outputs (generalised
    cross-validation). The trace is estimated with fixed random signs, to less than 1 % of the number of features, so
    there must be more examples than that. It needs the head's sums alone.
    """
    examples, size = float(head.gram[-1, -1]), len(head.gram)
    if (factor := factorise(head, ridge)) is None:
        return -math.inf
    weights = torch.cholesky_solve(head.moments, factor)
    left = float((head.counts - 2 * (head.moments * weights).sum(0) + (weights * (head.gram @ weights)).sum(0)).sum())
    signs = torch.randint(2, (size, PROBES), generator=generator_for("signs")).to(factor) * 2 - 1
    free = ridge * float((signs * torch.cholesky_solve(signs, factor)).sum()) / PROBES
    share = 1 - (size - free) / (examples if worth is None else worth)
    return 2 * math.log(max(share, 1e-6)) - math.log(max(left / examples, 1e-30))


def choose_ridge(
    head: ConjugateHead, worth: float | None = None, usual: float = 0.1, is_validated: bool = False
) -> float:
    """Return the ridge with the greatest evidence; from the ``usual`` one up or down, as far as it gains.

    If it ``is_validated``, and there are twice as many examples as features, the one with the best cross-validated fit
    instead. Where examples came again the ridges are those for what they are worth, in units of all of them.
    """
    examples = max(float(head.gram[-1, -1]), 1.0)
    worth = examples if worth is None else worth
    judge = cross_validated_fit if is_validated and worth >= 2 * len(head.gram) else log_evidence
    unit = examples / worth

    def rate(rung: int) -> float:
        return judge(head, unit * RIDGES[rung], worth)

    start = min(range(len(RIDGES)), key=lambda rung: abs(RIDGES[rung] - usual))
    found = {start: rate(start)}
    for step in (1, -1):
        at = start
        while 0 <= at + step < len(RIDGES):
            found[at + step] = rate(at + step)
            if found[at + step] <= found[at]:
                break
            at += step
        if at != start:
            break
    return unit * RIDGES[max(found, key=lambda rung: found[rung])]
