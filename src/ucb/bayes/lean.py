"""The gradient of the ELBO under whole weight samples, one sample at a time, written out by hand.

Autograd would keep noise, weights and sigma of every sample and visit each of them several times. Here a sample's
weights are leaves; once their gradient g is known, mu's gradient gains g and sigma's gains g * epsilon, and the buffers
serve the next sample. Memory is eight times one weight tensor, however many samples there are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ucb.bayes.kl import expected_log_q, learning
from ucb.bayes.passes import Pass
from ucb.bayes.posterior import Gaussian
from ucb.bayes.priors import Prior


@torch.no_grad()
def lean_gradients(
    net: nn.Module,
    nll_of: Callable[[Pass], Tensor],
    samples: int,
    *,
    prior: Prior,
    prior_samples: int,
    kl_weight: float,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor | None]:
    """Add the gradient of mean NLL + kl_weight * KL to the parameters; return NLL and KL (None at weight 0)."""
    tensors = [_SampledTensor(gaussian, prior.of(name)) for name, gaussian in learning(net)]
    by_samples = [t for t in tensors if kl_weight > 0 and not t.prior.is_closed]
    nlls, log_ps = [], []
    for s in range(max(samples, prior_samples) if by_samples else samples):
        for t in tensors:
            t.draw(generator)
        if s < samples:
            with torch.enable_grad():
                nll = nll_of(Pass("weights", generator=generator, drawn={t.gaussian: t.w for t in tensors}))
                (nll / samples).backward()
            nlls.append(nll.detach())
        if s < prior_samples:
            log_ps += [t.add_prior(kl_weight / prior_samples) for t in by_samples]
        for t in tensors:
            t.accumulate()
    kls = [t.finish(kl_weight) for t in tensors]
    nll = torch.stack(nlls).mean()
    if kl_weight == 0:
        return nll, None
    return nll, torch.stack([*kls, *(log_p / -prior_samples for log_p in log_ps)]).sum()


class _SampledTensor:
    """One Gaussian weight tensor during a step: its current sample, and its gradients so far."""

    def __init__(self, gaussian: Gaussian, prior: Prior) -> None:
        self.gaussian, self.prior = gaussian, prior
        self.mean, self.sigma = gaussian.mean.detach(), gaussian.sigma.detach()
        self.eps = torch.empty_like(self.mean)
        self.w = torch.empty_like(self.mean).requires_grad_()
        self.grad_mean: Tensor | None = None
        self.grad_sigma: Tensor | None = None

    def draw(self, generator: torch.Generator | None) -> None:
        """Draw w = mu + sigma * epsilon into the buffers of the last sample."""
        self.eps.normal_(generator=generator)
        self.w.grad = None
        torch.addcmul(self.mean, self.sigma, self.eps, out=self.w.detach())

    def add_prior(self, weight: float) -> Tensor:
        """Add the gradient of -weight * log p(w); return the sum of log p(w)."""
        w, keep = self.w.detach(), self.gaussian.keep
        total, score = self.prior.total_and_score(w)
        if keep is not None:
            total = self.prior.log_prob(w).where(keep, 0).sum()
        if self.w.grad is None:
            self.w.grad = score.mul_(-weight)
        else:
            self.w.grad.add_(score, alpha=-weight)
        return total

    def accumulate(self) -> None:
        """Pass the sample's gradient on to mean and sigma: dw/dmu = 1, dw/dsigma = epsilon."""
        grad = self.w.grad
        if grad is None:  # the pass did not use this weight
            return
        if self.grad_mean is None or self.grad_sigma is None:
            self.grad_mean, self.grad_sigma = grad, grad * self.eps
        else:
            self.grad_mean.add_(grad)
            self.grad_sigma.addcmul_(grad, self.eps)
        self.w.grad = None

    def finish(self, kl_weight: float) -> Tensor:
        """Add what is known of the KL in closed form, and hand the gradients to mu and rho; return that part."""
        mean, sigma, keep = self.mean, self.sigma, self.gaussian.keep
        del self.eps, self.w
        if keep is not None:
            sigma = sigma.where(keep, 1)
        kl = sigma.new_zeros(())
        if kl_weight > 0:
            self._add("grad_sigma", sigma.reciprocal(), -kl_weight)
            elements = expected_log_q(sigma)
            if self.prior.is_closed:
                elements.sub_(self.prior.expected_log_prob(mean, sigma))
                by_mean, by_sigma = self.prior.expected_score(mean, sigma)
                self._add("grad_mean", by_mean, -kl_weight)
                self._add("grad_sigma", by_sigma, -kl_weight)
            kl = elements.sum() if keep is None else elements.where(keep, 0).sum()
        self._hand_over()
        return kl

    def _add(self, name: str, value: Tensor, factor: float) -> None:
        total = getattr(self, name)
        if total is None:
            setattr(self, name, value.mul_(factor))
        else:
            total.add_(value, alpha=factor)

    def _hand_over(self) -> None:
        """Add to ``grad`` of mu and, through sigma = softplus(rho), of rho."""
        mu, rho, keep = self.gaussian.mu, self.gaussian.rho, self.gaussian.keep
        if self.grad_sigma is not None:
            self.grad_sigma.mul_(torch.sigmoid(rho))
        for parameter, grad in ((mu, self.grad_mean), (rho, self.grad_sigma)):
            if grad is None or not parameter.requires_grad:
                continue
            if keep is not None:
                grad = grad.mul_(keep)
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
