"""The gradient of the ELBO on a GPU, where all weight samples travel together and kernels make the noise themselves.

What ``lean`` does one sample at a time happens here for all of them in three passes over the weights: draw, gather the
gradients of all samples (the noise is made again, not kept; the prior's score joins on the way), and hand them over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ucb.bayes.kernels import fused
from ucb.bayes.kernels.clipping import Measured
from ucb.bayes.kl import learning, refuse_empty
from ucb.bayes.lean import Penalty
from ucb.bayes.passes import Pass
from ucb.bayes.posterior import Gaussian
from ucb.bayes.priors import HALF_LOG_TWO_PI, ScaleMixture


def can_fuse(net: nn.Module, penalty: Penalty) -> bool:
    """Say whether the kernels can serve: on a GPU, in single precision, and with a scale mixture or no prior."""
    return all(
        g.mu.requires_grad
        and fused.serves(g.mu, g.rho)
        and (penalty.weight == 0 or isinstance(penalty.prior.of(name), ScaleMixture))
        for name, g in learning(net)
    )


@torch.no_grad()
def fused_gradients(
    net: nn.Module, nll_of: Callable[[Pass], Tensor], p: Pass, penalty: Penalty, measured: Measured | None = None
) -> tuple[Tensor, Tensor | None]:
    """Add the gradient of mean NLL + weight * KL to the parameters; return NLL and KL (None unless it is valued).

    ``p`` is the pass on which all samples travel; it gets the weights.
    """
    tensors = learning(net)
    if penalty.weight > 0:
        refuse_empty(tensors)
    seed = fused.new_seed(tensors[0][1].mu.device, p.generator) if tensors else None
    drawn: list[Tensor] = []
    for salt, (_, g) in enumerate(tensors):
        assert seed is not None
        drawn.append(fused.sample(g.mu, g.rho, g.keep, seed, salt, p.samples).requires_grad_())
    with torch.enable_grad():
        for (_, g), w in zip(tensors, drawn, strict=True):
            p.drawn[g] = w if p.samples > 1 else w[0]
        nll = nll_of(p)
        nll.backward()
    parts = [
        _hand_over(name, g, penalty, seed, salt, w.grad)
        for salt, ((name, g), w) in enumerate(zip(tensors, drawn, strict=True))
        if seed is not None
    ]
    return nll.detach(), _kl(tensors, penalty, parts, measured)


@torch.no_grad()
def fused_kl_gradients(
    net: nn.Module,
    penalty: Penalty,
    passes: Sequence[Pass],
    measured: Measured | None = None,
) -> Tensor | None:
    """Add the gradient of weight * KL alone to the parameters; return the KL (None unless it is valued).

    Gradients by sigma^2 that the passes have left for later go on to rho. ``measured`` gets the sums of squares of the
    gradients, unless the KL is valued.
    """
    kept = {g: later.take() for p in passes for g, later in (p.later or {}).items()}
    left = {g: grad for g, grad in kept.items() if grad is not None}
    tensors = learning(net)
    if penalty.weight > 0:
        refuse_empty(tensors)
        seed = fused.new_seed(tensors[0][1].mu.device, passes[0].generator)
    elif left:
        tensors = [(name, g) for name, g in tensors if g in left]
        assert passes[0].seed is not None
        seed = passes[0].seed  # nothing is drawn with it
    else:
        return None
    parts = [_hand_over(name, g, penalty, seed, salt, None, left.get(g)) for salt, (name, g) in enumerate(tensors)]
    return _kl(tensors, penalty, parts, measured)


def _hand_over(
    name: str,
    gaussian: Gaussian,
    penalty: Penalty,
    seed: Tensor,
    salt: int,
    grad_w: Tensor | None,
    grad_square: Tensor | None = None,
) -> Tensor:
    """Add to ``grad`` of mu and, unless it is frozen, of rho; return the sums that the KL is made of."""
    mu, rho, keep = gaussian.mu, gaussian.rho, gaussian.keep
    prior, mixture = penalty.prior.of(name), None
    if penalty.weight > 0:
        assert isinstance(prior, ScaleMixture)
        mixture = (prior.k, prior.b, prior.c)
    add = mu.grad is not None, rho.grad is not None
    mu.grad = torch.empty_like(mu) if mu.grad is None else mu.grad
    if rho.requires_grad and rho.grad is None:
        rho.grad = torch.empty_like(rho)
    return fused.gradients(
        mu,
        rho,
        keep,
        seed,
        salt,
        grad_w,
        grad_square,
        penalty.samples,
        mixture,
        -penalty.weight / penalty.samples,
        penalty.weight,
        mu.grad,
        rho.grad if rho.requires_grad else None,
        add,
        penalty.is_valued,
    )


def _kl(
    tensors: list[tuple[str, Gaussian]], penalty: Penalty, parts: list[Tensor], measured: Measured | None
) -> Tensor | None:
    """Return KL = E log q - E log p, with E log q = -log sigma - (1 + log 2 pi) / 2 and log p = f(w) + a."""
    if not penalty.is_valued:
        if measured is not None:
            for (_, g), sums in zip(tensors, parts, strict=True):
                measured[g.mu], by_rho = sums.unbind(1)
                if g.rho.requires_grad:
                    measured[g.rho] = by_rho
        return None
    known: float | Tensor = 0.0
    for name, g in tensors:
        prior = penalty.prior.of(name)
        assert isinstance(prior, ScaleMixture)
        known = known + (g.mu.numel() if g.keep is None else g.keep.sum()) * (0.5 + HALF_LOG_TWO_PI + prior.a)
    log_p, log_sigma = torch.cat(parts).sum(0).unbind()
    return -known - log_sigma - log_p / penalty.samples
