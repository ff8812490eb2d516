"""Whether the "uncertainty" learns: how far sigma moved from its start."""

from __future__ import annotations

import torch
from torch import Tensor

from ucb.bayes import gaussians
from ucb.methods.bayesian import BayesianMethod

Movement = dict[str, float | None]
"""What moved in one weight tensor, by name."""

PERCENTILES = (1, 50, 99)
"""Of the ratio of sigma's end to its start."""


@torch.no_grad()
def sigma_movement(method: BayesianMethod) -> dict[str, Movement]:
    """Return, for each weight tensor, how far sigma moved from its start.

    The ratio of end to start at three percentiles; how much log sigma varies at the end; and the correlation of the
    two, where the start varied: near 1, the "uncertainty" would be nothing but the first random numbers.
    """
    weights = dict(gaussians(method.net))
    figures = _read([_figures(_flat(method.start[name]), _flat(g.sigma)) for name, g in weights.items()])
    found: dict[str, Movement] = {}
    varied: list[str] = []
    for name, (*ratios, std_log, std, mean) in zip(weights, figures, strict=True):
        of_ratio = {f"ratio_p{p}": ratio for p, ratio in zip(PERCENTILES, ratios, strict=True)}
        found[name] = {**of_ratio, "std_log_sigma": std_log, "correlation_with_start": None}
        if std > 1e-6 * mean:
            varied.append(name)
    correlations = _read([_correlation(_flat(method.start[name]), _flat(weights[name].sigma)) for name in varied])
    for name, (correlation,) in zip(varied, correlations, strict=True):
        found[name]["correlation_with_start"] = correlation
    return found


def _flat(values: Tensor) -> Tensor:
    return values.flatten().double()


def _figures(start: Tensor, end: Tensor) -> Tensor:
    """Return the ratio's percentiles, how much log sigma varies, and the standard deviation and mean of the start."""
    ratio = (end / start).sort().values
    percentiles = [ratio[round(p / 100 * (len(ratio) - 1))] for p in PERCENTILES]
    return torch.stack([*percentiles, _std(end.log()), _std(start), start.mean()])


def _std(values: Tensor) -> Tensor:
    """Return the standard deviation, 0 for a single value."""
    return values.std() if len(values) > 1 else values.new_zeros(())


def _correlation(start: Tensor, end: Tensor) -> Tensor:
    return torch.corrcoef(torch.stack([start, end]))[0, 1:]


def _read(rows: list[Tensor]) -> list[list[float]]:
    """Return all their numbers at once: each look holds up a GPU."""
    return torch.stack(rows).tolist() if rows else []
