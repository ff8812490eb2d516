"""What the fused kernels compute, in plain PyTorch and in any precision, with the noise ``eps`` [S, ...] given.

All but those that work in place can be differentiated.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ucb.kernels import inverse_softplus, log_softplus


def sample(mu: Tensor, rho: Tensor, keep: Tensor | None, eps: Tensor) -> Tensor:
    """Return w = mu + softplus(rho) * eps as [samples, ...]; a pruned weight is 0."""
    return _kept(mu + F.softplus(rho) * eps, keep)


def sigma_squared(rho: Tensor, keep: Tensor | None) -> Tensor:
    """Return softplus(rho)^2, and 0 where pruned."""
    return _kept(F.softplus(rho).square(), keep)


def local_noise(mean: Tensor, variance: Tensor, eps: Tensor) -> Tensor:
    """For [rows, features] return [rows * samples, features]: row r * samples + s is a draw of row r."""
    some = variance > 0
    spread = variance.where(some, 1).sqrt() * some
    return (mean + spread * eps).transpose(0, 1).flatten(0, 1)


@torch.no_grad()
def gradients(
    mu: Tensor,
    rho: Tensor,
    keep: Tensor | None,
    eps: Tensor,
    grad_w: Tensor | None,
    grad_square: Tensor | None,
    prior_samples: int,
    mixture: tuple[float, float, float] | None,
    factor: float,
    entropy: float,
    out_mu: Tensor,
    out_rho: Tensor,
    add: tuple[bool, bool],
) -> Tensor:
    """Write, or add, the gradients by mu and rho; return the sums of f(w) and of log sigma."""
    sigma, log_sigma = F.softplus(rho), log_softplus(rho)
    by_mean, log_p = torch.zeros_like(mu), torch.zeros_like(mu)
    by_sigma = torch.zeros_like(mu) if grad_square is None else 2 * sigma * grad_square
    samples = 0 if grad_w is None else len(grad_w)
    for s in range(max(samples, 0 if mixture is None else prior_samples)):
        grad = torch.zeros_like(mu) if grad_w is None or s >= samples else grad_w[s]
        if mixture is not None and s < prior_samples:
            k, b, c = mixture
            w = mu + sigma * eps[s]
            odds = b + c * w.square()
            grad = grad + factor * 2 * w * (k + c * odds.sigmoid())
            log_p += k * w.square() + F.softplus(odds)
        by_mean += grad
        by_sigma += grad * eps[s]
    # sigmoid(rho) / sigma is the derivative of log sigma, which must not become 0 / 0
    by_rho = by_sigma * rho.sigmoid() - entropy * (F.logsigmoid(rho) - log_sigma).exp()
    for out, grad, is_added in ((out_mu, by_mean, add[0]), (out_rho, by_rho, add[1])):
        out.copy_(_kept(grad, keep) + (out if is_added else 0))
    return torch.stack([_kept(log_p, keep).sum(), _kept(log_sigma, keep).sum()])


@torch.no_grad()
def descend(
    mu: Tensor,
    rho: Tensor,
    grad_mu: Tensor,
    grad_rho: Tensor,
    scale_mu: Tensor | None,
    scale_rho: Tensor | None,
    keep: Tensor | None,
    lr: float,
    rho_lr: float,
    factor: float = 1.0,
) -> None:
    """Step mu and rho in place; a pruned weight stays."""
    lr, rho_lr = factor * lr, factor * rho_lr
    for parameter, grad, scale, rate in ((mu, grad_mu, scale_mu, lr), (rho, grad_rho, scale_rho, rho_lr)):
        parameter.sub_(_kept(rate * (grad if scale is None else grad * scale), keep))


@torch.no_grad()
def natural(
    mu: Tensor,
    rho: Tensor,
    grad_mu: Tensor,
    signed: Tensor,
    curvature: Tensor,
    precision: Tensor,
    seen: Tensor,
    scale: Tensor | None,
    keep: Tensor | None,
    lr: float,
    temperature: float,
    size: int,
    beta: float,
    rows: int,
) -> None:
    """Take one step of UCB-NG in place, on mu, rho and the curvature."""
    delta = precision * (temperature / size)
    curvature.add_((signed.square() / rows - curvature) * (beta / (1 - (1 - beta) ** seen)))
    new = inverse_softplus((temperature / size / (curvature + delta)).sqrt())
    rho.copy_(new if keep is None else new.where(keep, rho))
    mu.sub_(_kept(lr * (grad_mu if scale is None else grad_mu * scale), keep))


def _kept(values: Tensor, keep: Tensor | None) -> Tensor:
    return values if keep is None else values.where(keep, 0)
