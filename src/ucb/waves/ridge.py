"""How strongly a conjugate head's weights are drawn to 0, chosen by the evidence: no data are needed, only its sums.

With N examples, D weights an output, A = ridge + sum phi phi^T and R_c the squares that output c leaves unexplained
(those of the weights included), the log of the marginal likelihood at the best noise s_c^2 = R_c / N is, but for a
constant, -N/2 sum_c log(R_c / N) - C/2 (log|A| - D log ridge).

An example that comes again is met exactly and would prove that there is no noise. So the first N is what the examples
are worth, where a repeated one adds nothing: it is the likelihood raised to the power worth / N. With everything
learnt twice the evidence is then that of learning it once, at twice the ridge: the same weights.
"""

from __future__ import annotations

import math

import torch

from ucb.bayes.conjugate import ConjugateHead

LADDER = tuple(math.pow(10, step / 2) for step in range(-8, 9))
"""The ridges that are tried: 1e-4 to 1e4, two in each power of ten."""
START = LADDER.index(0.1)
LEAST_NOISE = 1e-3
"""Variance that outputs have at least: a handful of examples can be met exactly, which proves nothing."""


def log_evidence(head: ConjugateHead, ridge: float, worth: float | None = None) -> float:
    """Return the log of the marginal likelihood, but for a constant; -inf where rounding leaves no posterior."""
    examples = float(head.counts.sum())
    whole = head.gram.clone()
    whole.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(whole)
    if int(failed):
        return -math.inf
    weights = torch.cholesky_solve(head.moments, factor)
    left = (head.counts - (head.moments * weights).sum(0)).clamp_min(LEAST_NOISE * max(examples, 1.0))
    fit = -(examples if worth is None else worth) / 2 * float((left / max(examples, 1.0)).log().sum())
    size = len(whole) * math.log(ridge)
    volume = 2 * float(factor.diagonal().log().sum()) - size
    return fit - len(head.counts) / 2 * volume


def best_ridge(head: ConjugateHead, worth: float | None = None) -> float:
    """Return the ridge of the ladder with the greatest evidence; from the usual one up or down, as far as it gains.

    Where examples came again the ladder is that for what they are worth, in units of all of them.
    """
    unit = 1.0 if worth is None else max(float(head.counts.sum()), 1.0) / worth

    def evidence(rung: int) -> float:
        return log_evidence(head, unit * LADDER[rung], worth)

    found = {START: evidence(START)}
    for step in (1, -1):
        at = START
        while 0 <= at + step < len(LADDER):
            found[at + step] = evidence(at + step)
            if found[at + step] <= found[at]:
                break
            at += step
        if at != START:
            break
    return unit * LADDER[max(found, key=lambda rung: found[rung])]
