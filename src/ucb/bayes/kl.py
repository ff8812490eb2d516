"""KL(q || p) of a whole net, the first term of the paper's Eq. 2.

E_q[log q] is known in closed form, so only the prior may need samples; a Gaussian prior needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

import torch
from torch import Tensor, nn

from ucb.bayes.checks import count
from ucb.bayes.posterior import Gaussian, gaussians
from ucb.bayes.priors import HALF_LOG_TWO_PI, Prior


def expected_log_q(sigma: Tensor) -> Tensor:
    """Return E_q[log q(w)] = -log sigma - (1 + log 2 pi) / 2, elementwise."""
    return -sigma.log() - (0.5 + HALF_LOG_TWO_PI)


def kl_divergence(
    net: nn.Module,
    prior: Prior,
    samples: int = 1,
    *,
    drawn: Sequence[Mapping[Gaussian, Tensor]] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return KL(q || p), summed over the weights that are learning and not pruned.

    A prior without a closed form is averaged over ``samples`` weight samples: those ``drawn`` already, and new ones
    where they do not suffice.
    """
    count("samples", samples)
    tensors = learning(net)
    refuse_empty(tensors)
    total = torch.zeros((), device=tensors[0][1].mu.device)
    for name, gaussian in tensors:
        elements = _kl_elements(
            gaussian, prior.of(name), samples, [d[gaussian] for d in drawn if gaussian in d], generator
        )
        part = elements.sum() if gaussian.keep is None else elements.where(gaussian.keep, 0).sum()
        total = total + part
    return total


def learning(net: nn.Module) -> list[tuple[str, Gaussian]]:
    """Return the Gaussians that the KL term covers: those not frozen with ``requires_grad_(False)``."""
    return [(name, gaussian) for name, gaussian in gaussians(net) if gaussian.is_learning]


def refuse_empty(tensors: Sized) -> None:
    """Refuse a net whose KL term would be empty."""
    if not len(tensors):
        raise ValueError("no Gaussian weight of the net is learning, so there is no KL term: see to_bayesian()")


def _kl_elements(
    gaussian: Gaussian, prior: Prior, samples: int, drawn: list[Tensor], generator: torch.Generator | None
) -> Tensor:
    sigma = gaussian.sigma
    if gaussian.keep is not None:
        sigma = sigma.where(gaussian.keep, 1)  # a pruned weight has no spread; its element is dropped by the caller
    if prior.is_closed:
        return expected_log_q(sigma) - prior.expected_log_prob(gaussian.mean, sigma)
    taken = list(drawn[:samples])
    taken += [gaussian.sample((), generator) for _ in range(samples - len(taken))]
    log_p = torch.stack([prior.log_prob(w) for w in taken]).mean(0) if samples > 1 else prior.log_prob(taken[0])
    return expected_log_q(sigma) - log_p
