"""Whether the "uncertainty" learns: how far sigma moved from its start."""

from __future__ import annotations

import torch

from ucb.bayes import gaussians
from ucb.methods.bayesian import BayesianMethod

Movement = dict[str, float | None]
"""What moved in one weight tensor, by name."""


def sigma_movement(method: BayesianMethod) -> dict[str, Movement]:
    """Return, for each weight tensor, how far sigma moved from its start.

    The ratio of end to start at three percentiles; how much log sigma varies at the end; and the correlation of the
    two, where the start varied: near 1, the "uncertainty" would be nothing but the first random numbers.
    """
    found: dict[str, Movement] = {}
    for name, gaussian in gaussians(method.net):
        start, end = method.start[name].flatten().double(), gaussian.sigma.detach().flatten().double()
        ratio = (end / start).sort().values
        varies = float(start.std()) > 1e-6 * float(start.mean()) if start.numel() > 1 else False
        found[name] = {
            **{f"ratio_p{p}": float(ratio[round(p / 100 * (len(ratio) - 1))]) for p in (1, 50, 99)},
            "std_log_sigma": float(end.log().std()) if end.numel() > 1 else 0.0,
            "correlation_with_start": float(torch.corrcoef(torch.stack([start, end]))[0, 1]) if varies else None,
        }
    return found
