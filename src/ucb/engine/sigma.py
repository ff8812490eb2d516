"""Whether the "uncertainty" learns: how far sigma moved from its start."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ucb.bayes import gaussians
from ucb.bayes.posterior import Gaussian
from ucb.methods.bayesian import BayesianMethod

Movement = dict[str, float | None]
"""What moved in one weight tensor, by name."""

PERCENTILES = (1, 50, 99)
"""Of the ratio of sigma's end to its start."""

FIGURES = (*(f"ratio_p{p}" for p in PERCENTILES), "std_log_sigma", "correlation_with_start")
"""The names in a movement."""


@torch.no_grad()
def sigma_movement(method: BayesianMethod, among: Iterable[tuple[str, Gaussian]] | None = None) -> dict[str, Movement]:
    """Return, for each weight tensor or for some of them, how far sigma moved from its start.

    The ratio of end to start at three percentiles; how much log sigma varies at the end; and the correlation of the
    two, where both vary: near 1, the "uncertainty" would be nothing but the first random numbers.
    """
    weights = dict(gaussians(method.net) if among is None else among)
    ends = {name: gaussian.sigma.flatten().double() for name, gaussian in weights.items()}
    starts = {
        name: torch.as_tensor(method.start[name], dtype=end.dtype, device=end.device).flatten()
        for name, end in ends.items()
    }
    figures = _read([_figures(starts[name], end) for name, end in ends.items()])
    found: dict[str, Movement] = {}
    varied: list[str] = []
    for name, (*ratios, std_log, std, mean) in zip(weights, figures, strict=True):
        found[name] = dict(zip(FIGURES, (*ratios, std_log, None), strict=True))
        if std > 1e-6 * mean:
            varied.append(name)
    correlations = _read([_correlation(starts[name], ends[name]) for name in varied])
    for name, (correlation,) in zip(varied, correlations, strict=True):
        found[name]["correlation_with_start"] = None if math.isnan(correlation) else correlation
    return found


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
