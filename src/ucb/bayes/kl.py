"""KL(q || p) of a whole net, the first term of the paper's Eq. 2.

E_q[log q] is known in closed form, so only the prior may need samples; a Gaussian prior needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized

import torch
from torch import Tensor, nn

from ucb.bayes.checks import count
from ucb.bayes.posterior import Gaussian, gaussians, log_softplus
from ucb.bayes.priors import HALF_LOG_TWO_PI, Prior


def expected_log_q(rho: Tensor) -> Tensor:
    """Return E_q[log q(w)] = -log sigma - (1 + log 2 pi) / 2, elementwise, where sigma may underflow."""
    return -log_softplus(rho) - (0.5 + HALF_LOG_TWO_PI)


def kl_divergence(
    net: nn.Module,
    prior: Prior,
    samples: int = 1,
    *,
    drawn: Mapping[Gaussian, Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return KL(q || p), summed over the weights that are learning and not pruned.

    A prior without a closed form is averaged over ``samples`` weight samples: those ``drawn`` already, [count, ...] for
    each weight tensor, and new ones where they do not suffice.
    """
    count("samples", samples)
    tensors = learning(net)
    refuse_empty(tensors)
    total = torch.zeros((), device=tensors[0][1].mu.device)
    for name, gaussian in tensors:
        sigma, keep = gaussian.sigma, gaussian.keep
        if keep is not None:
            sigma = sigma.where(keep, 1)  # a pruned weight has no spread; its element is dropped below
        if prior.of(name).is_closed:
            log_p = prior.of(name).expected_log_prob(gaussian.mean, sigma)
        else:
            known = None if drawn is None else drawn.get(gaussian)
            log_p = prior.of(name).log_prob(_exactly(samples, known, gaussian, generator)).mean(0)
        elements = expected_log_q(gaussian.rho) - log_p
        total = total + (elements.sum() if keep is None else elements.where(keep, 0).sum())
    return total


def _exactly(samples: int, known: Tensor | None, gaussian: Gaussian, generator: torch.Generator | None) -> Tensor:
    """Return [samples, ...] weight samples, known ones first."""
    if known is None:
        return gaussian.sample((samples,), generator)
    missing = samples - len(known)
    return known[:samples] if missing <= 0 else torch.cat([known, gaussian.sample((missing,), generator)])


def learning(net: nn.Module) -> list[tuple[str, Gaussian]]:
    """Return the Gaussians that the KL term covers: those not frozen with ``requires_grad_(False)``."""
    return [(name, gaussian) for name, gaussian in gaussians(net) if gaussian.is_learning]


def refuse_empty(tensors: Sized) -> None:
    """Refuse a net whose KL term would be empty."""
    if not len(tensors):
        raise ValueError("no Gaussian weight of the net is learning, so there is no KL term: see to_bayesian()")
