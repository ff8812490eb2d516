"""The gradient of the ELBO under whole weight samples, written out by hand.

``sequential_gradients`` takes one sample at a time. Autograd would keep noise, weights and sigma of every sample and
visit each of them several times. Here a sample's weights are leaves; once their gradient g is known, mu's gradient
gains g and sigma's gains g * epsilon, and the buffers serve the next sample. Memory is eight times one weight tensor,
however many samples there are.

``stacked_gradients`` takes all samples together, on a GPU, where kernels make the noise themselves: three passes over
the weights draw them, gather the gradients of all samples (the noise is made again, not kept; the prior's score joins
on the way), and hand them over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb import kernels
from ucb.bayes.passes import Pass, active
from ucb.bayes.posterior import Gaussian
from ucb.bayes.priors import HALF_LOG_TWO_PI, Prior, ScaleMixture, refuse_empty, trainable_gaussians
from ucb.kernels import SMALLEST_RHO
from ucb.kernels.triton import fused, launch
from ucb.kernels.triton.steps import Measured


class Penalty(NamedTuple):
    """The KL term of the objective: weight * KL(q || prior), with ``samples`` where the prior has no closed form."""

    prior: Prior
    weight: float
    samples: int
    is_asked: bool = True
    """Whether the caller wants the KL's value, and not its gradient alone."""

    @property
    def is_valued(self) -> bool:
        """Whether the KL has to be computed."""
        return self.is_asked and self.weight > 0


@torch.no_grad()
def sequential_gradients(
    net: nn.Module,
    nll_of: Callable[[Pass], Tensor],
    samples: int,
    penalty: Penalty,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Add the gradient of mean NLL + weight * KL to the parameters; return NLL and KL (None unless it is valued)."""
    tensors = _sampled_tensors(net, penalty)
    by_samples = [t for t in tensors if penalty.weight > 0 and not t.prior.is_closed]
    nlls, log_ps = [], []
    for s in range(max(samples, penalty.samples) if by_samples else samples):
        for t in tensors:
            t.draw(generator)
        if s < samples:
            with torch.enable_grad():
                p = Pass("weights", generator=generator, drawn={t.gaussian: t.w for t in tensors})
                nll = nll_of(p)
                with active(p):  # layers that backward runs again (checkpointing) find the same weights
                    (nll / samples).backward()
            nlls.append(nll.detach())
        if s < penalty.samples:
            log_ps += [t.add_prior(penalty) for t in by_samples]
        for t in tensors:
            t.accumulate()
    return torch.stack(nlls).mean(), _finish(tensors, penalty, log_ps)


@torch.no_grad()
def sequential_kl_gradients(
    net: nn.Module, penalty: Penalty, generator: torch.Generator | None = None
) -> Tensor | None:
    """Add the gradient of weight * KL alone to the parameters; return the KL (None unless it is valued)."""
    tensors = _sampled_tensors(net, penalty) if penalty.weight > 0 else []
    log_ps = []
    for t in tensors:
        for _ in range(0 if t.prior.is_closed else penalty.samples):
            t.draw(generator)
            log_ps.append(t.add_prior(penalty))
            t.accumulate()
    return _finish(tensors, penalty, log_ps)


def _learning_tensors(net: nn.Module, penalty: Penalty) -> list[tuple[str, Gaussian]]:
    tensors = trainable_gaussians(net)
    if penalty.weight > 0:
        refuse_empty(tensors)
    return tensors


def _sampled_tensors(net: nn.Module, penalty: Penalty) -> list[_SampledTensor]:
    return [_SampledTensor(gaussian, penalty.prior.of(name)) for name, gaussian in _learning_tensors(net, penalty)]


def _finish(tensors: list[_SampledTensor], penalty: Penalty, log_ps: list[Tensor]) -> Tensor | None:
    """Hand the gradients over; return the KL, of which ``log_ps`` is the part that was sampled."""
    known = [t.finish(penalty) for t in tensors]
    if not penalty.is_valued:
        return None
    return torch.stack([*known, *(log_p / -penalty.samples for log_p in log_ps)]).sum()


_buffers: WeakKeyDictionary[Gaussian, Tensor] = WeakKeyDictionary()
"""Sigma, noise and weights of the last step, to be written over by the next: memory that is allocated anew every step
must be cleared by the system each time, and becomes fragmented."""


def _buffers_for(gaussian: Gaussian) -> Tensor:
    rho, found = gaussian.rho, _buffers.get(gaussian)
    wanted = (rho.shape, rho.dtype, rho.device)
    if found is None or found.is_inference() or (found.shape[1:], found.dtype, found.device) != wanted:
        found = _buffers[gaussian] = torch.empty(3, *rho.shape, dtype=rho.dtype, device=rho.device)
    return found


class _SampledTensor:
    """One Gaussian weight tensor during a step: its current sample, and its gradients so far."""

    def __init__(self, gaussian: Gaussian, prior: Prior) -> None:
        self.gaussian, self.prior = gaussian, prior
        self.mean, rho = gaussian.mean.detach(), gaussian.rho.detach()
        self.sigma, self.eps, self.w = _buffers_for(gaussian).unbind()
        F.softplus(rho, out=self.sigma)  # type: ignore[call-arg]
        if gaussian.keep is not None:
            self.sigma.mul_(gaussian.keep)
        self.w.requires_grad_()
        self.grad_mean: Tensor | None = None
        self.grad_sigma: Tensor | None = None

    def draw(self, generator: torch.Generator | None) -> None:
        """Draw w = mu + sigma * epsilon into the buffers of the last sample."""
        self.w.grad = None
        kernels.draw(self.mean, self.sigma, self.eps, self.w.detach(), generator)

    def add_prior(self, penalty: Penalty) -> Tensor:
        """Add this sample's share of the gradient of -weight * E[log p(w)]; return the sum of log p(w)."""
        w, keep = self.w.detach(), self.gaussian.keep
        if self.w.grad is None:
            self.w.grad = torch.zeros_like(w)
        total = self.prior.add_score(w, self.w.grad, -penalty.weight / penalty.samples)
        return total if keep is None else self.prior.log_prob(w).where(keep, 0).sum()

    def accumulate(self) -> None:
        """Pass the sample's gradient on to mean and sigma: dw/dmu = 1, dw/dsigma = epsilon."""
        grad = self.w.grad
        if grad is None:  # the pass did not use this weight
            return
        if self.grad_mean is None:
            self.grad_mean = grad
            self.grad_sigma = grad * self.eps if self.gaussian.rho.requires_grad else None
        elif self.grad_sigma is None:  # sigma is frozen
            self.grad_mean.add_(grad)
        else:
            kernels.accumulate(grad, self.eps, self.grad_mean, self.grad_sigma)
        self.w.grad = None

    def finish(self, penalty: Penalty) -> Tensor:
        """Add what is known of weight * KL in closed form, and the sums to ``grad`` of mu and, through sigma, of rho.

        Return that part of the KL.
        """
        kl = self._add_closed_part(penalty) if penalty.weight > 0 else self.sigma.new_zeros(())
        mu, rho, keep = self.gaussian.mu, self.gaussian.rho, self.gaussian.keep
        if self.grad_sigma is not None and rho.requires_grad:
            # The slope of the sigma that was divided by: their ratio, the slope of log sigma, stays 1 as both vanish.
            self.grad_sigma.mul_(torch.clamp(rho.detach(), min=SMALLEST_RHO, out=self.sigma).sigmoid_())
        for parameter, grad in ((mu, self.grad_mean), (rho, self.grad_sigma)):
            if grad is not None and parameter.requires_grad:
                grad = grad if keep is None else grad.mul_(keep)
                parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        return kl

    def _add_closed_part(self, penalty: Penalty) -> Tensor:
        mean, keep, weight = self.mean, self.gaussian.keep, penalty.weight
        self.grad_mean = torch.zeros_like(mean) if self.grad_mean is None else self.grad_mean
        self.grad_sigma = torch.zeros_like(mean) if self.grad_sigma is None else self.grad_sigma
        # What sigma is at its smallest stands for less, whose inverse would overflow.
        sigma = self.sigma.clamp_min_(math.exp(SMALLEST_RHO))
        # A pruned weight has no spread: with 1 in its place its logarithm adds nothing.
        sigma = sigma if keep is None else sigma.where(keep, 1)
        kl = self._expected_log_q(sigma) if penalty.is_valued else sigma.new_zeros(())
        self.grad_sigma.addcdiv_(sigma.new_ones(()), sigma, value=-weight)
        if not self.prior.is_closed:
            return kl
        total = self.prior.add_expected_score(mean, sigma, self.grad_mean, self.grad_sigma, -weight)
        if keep is not None:
            total = self.prior.expected_log_prob(mean, sigma).where(keep, 0).sum()
        return kl - total

    def _expected_log_q(self, sigma: Tensor) -> Tensor:
        """Return the sum of E log q = -log sigma - (1 + log 2 pi) / 2."""
        keep, rho = self.gaussian.keep, self.gaussian.rho
        count = sigma.numel() if keep is None else int(keep.sum())
        below = (rho.detach() - SMALLEST_RHO).clamp_max_(0)  # log sigma is rho there, and not what stands for it
        below = below if keep is None else below.where(keep, 0)
        return -kernels.sum_log(sigma) - below.sum() - count * (0.5 + HALF_LOG_TWO_PI)


def can_fuse(net: nn.Module, penalty: Penalty) -> bool:
    """Say whether the kernels can serve: on a GPU, in single precision, and with a scale mixture or no prior."""
    return all(
        g.mu.requires_grad
        and launch.supports(g.mu, g.rho)
        and (penalty.weight == 0 or isinstance(penalty.prior.of(name), ScaleMixture))
        for name, g in trainable_gaussians(net)
    )


@torch.no_grad()
def stacked_gradients(
    net: nn.Module, nll_of: Callable[[Pass], Tensor], p: Pass, penalty: Penalty, measured: Measured | None = None
) -> tuple[Tensor, Tensor | None]:
    """Add the gradient of mean NLL + weight * KL to the parameters; return NLL and KL (None unless it is valued).

    ``p`` is the pass on which all samples travel; it gets the weights.
    """
    tensors = _learning_tensors(net, penalty)
    drawn: list[Tensor] = []
    parts: list[Tensor] = []
    if tensors:
        seed = fused.new_seed(tensors[0][1].mu.device, p.generator)
    for salt, (_, g) in enumerate(tensors):
        drawn.append(fused.sample(g.mu, g.rho, g.keep, seed, salt, p.samples).requires_grad_())
    with torch.enable_grad():
        for (_, g), w in zip(tensors, drawn, strict=True):
            p.drawn[g] = w if p.samples > 1 else w[0]
        nll = nll_of(p)
        nll.backward()
    for salt, ((name, g), w) in enumerate(zip(tensors, drawn, strict=True)):
        parts.append(_hand_over(name, g, penalty, seed, salt, w.grad))
    return nll.detach(), _kl(tensors, penalty, parts, measured)


@torch.no_grad()
def stacked_kl_gradients(
    net: nn.Module, penalty: Penalty, passes: Sequence[Pass], measured: Measured | None = None
) -> Tensor | None:
    """Add the gradient of weight * KL alone to the parameters; return the KL (None unless it is valued).

    Gradients by sigma^2 that the passes have left for later go on to rho. ``measured`` gets the sums of squares of the
    gradients, unless the KL is valued.
    """
    kept = {g: later.take() for p in passes for g, later in (p.later or {}).items()}
    left = {g: grad for g, grad in kept.items() if grad is not None}
    tensors = _learning_tensors(net, penalty)
    if penalty.weight > 0:
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
    mu, rho = gaussian.mu, gaussian.rho
    prior, mixture = penalty.prior.of(name), None
    if penalty.weight > 0:
        assert isinstance(prior, ScaleMixture)
        mixture = (prior.k, prior.b, prior.c)
    add = mu.grad is not None, rho.grad is not None
    mu.grad = torch.empty_like(mu) if mu.grad is None else mu.grad
    if rho.requires_grad and rho.grad is None:
        rho.grad = torch.empty_like(rho)
    drawn = mu, rho, gaussian.keep, seed, salt, grad_w, grad_square
    kl = penalty.samples, mixture, -penalty.weight / penalty.samples, penalty.weight
    outputs = mu.grad, rho.grad if rho.requires_grad else None, add
    return fused.gradients(*drawn, *kl, *outputs, penalty.is_valued)


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
