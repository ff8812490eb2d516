"""Fused weights, outputs and their gradients against PyTorch and autograd."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.bayes import reference
from tests.bayes.fused_weights import CASES, KBC, NEW, SAMPLES, SHAPES, close, noise, normal, seed, weights
from tests.bayes.triton_tests import DEVICE, MARKS
from ucb.bayes import ELBO, ScaleMixture, gaussians, to_bayesian
from ucb.kernels.triton import fused, launch

pytestmark = MARKS


@pytest.mark.parametrize(("shape", "samples", "pruned"), CASES)
def test_sample_follows_the_reference(shape, samples, pruned):
    mu, rho, keep = weights(shape, pruned)
    w = fused.sample(mu, rho, keep, seed(), 3, samples)
    assert w.shape == (samples, *shape)
    close(w, reference.sample(mu.double(), rho.double(), keep, noise(shape, samples).double()))
    if keep is not None:
        assert (w[:, ~keep] == 0).all()


def quartered(shape):
    """One normal for each element: all four of a counter are used."""
    n = math.prod(shape)
    return noise((-(-n // 4),), 4).t().flatten()[:n].view(1, *shape)


@pytest.mark.parametrize("prior_samples", [0, 1, 6])
@pytest.mark.parametrize(
    ("samples", "pruned"), [(0, False), (0, True), (1, False), (2, True), (4, False), (5, True), (10, False)]
)
def test_gradients_are_those_of_the_loss(samples, prior_samples, pruned):
    shape, factor, entropy = (41, 17), -0.3, 0.7
    mu, rho, keep = weights(shape, pruned)
    grad_w = normal(samples, *shape) if samples else None
    grad_square = normal(*shape) if samples < 2 else None
    total = max(samples, prior_samples, 1)
    eps = (quartered(shape) if (samples, prior_samples) == (0, 1) else noise(shape, total)).double()

    m, r = mu.double().requires_grad_(), rho.double().requires_grad_()
    kept = torch.ones(shape, dtype=torch.bool, device=DEVICE) if keep is None else keep
    w = reference.sample(m, r, keep, eps)
    k, b, c = KBC
    f = (k * w.square() + F.softplus(b + c * w.square()))[:prior_samples].where(kept, 0).sum()
    log_sigma = F.softplus(r).log().where(kept, 0).sum()
    data = 0 if grad_w is None else (w[:samples] * grad_w.double()).sum()
    if grad_square is not None:
        data = data + (reference.sigma_squared(r, keep) * grad_square.double()).sum()
    (data + factor * f - entropy * log_sigma).backward()

    out_mu, out_rho = torch.full_like(mu, 7), torch.full_like(mu, 7)
    args = (grad_w, grad_square, prior_samples, KBC if prior_samples else None, factor, entropy)
    sums = fused.gradients(mu, rho, keep, seed(), 3, *args, out_mu, out_rho, NEW).sum(0)
    close(out_mu, m.grad, rtol=1e-4, atol=1e-4)
    close(out_rho, r.grad, rtol=1e-4, atol=1e-4)
    close(sums, torch.stack([f, log_sigma]).detach(), rtol=1e-4)

    ref_mu, ref_rho = torch.full_like(m, 7), torch.full_like(m, 7)
    args64 = (*(None if g is None else g.double() for g in args[:2]), *args[2:])
    ref_sums = reference.gradients(mu.double(), rho.double(), keep, eps, *args64, ref_mu, ref_rho, NEW)
    close(ref_mu, m.grad, rtol=1e-9, atol=1e-9)
    close(ref_rho, r.grad, rtol=1e-9, atol=1e-9)
    close(ref_sums, torch.stack([f, log_sigma]).detach(), rtol=1e-9)


@pytest.mark.parametrize("pruned", [False, True])
def test_the_squares_of_gradients_are_summed_on_the_way(pruned):
    mu, rho, keep = weights((41, 17), pruned)
    out = normal(2, 41, 17)
    added = (True, True)
    sums = fused.gradients(mu, rho, keep, seed(), 3, None, None, 1, KBC, 0.1, 0.2, *out, added, valued=False)
    close(sums.sum(0), out.double().square().sum((1, 2)))


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize(("samples", "prior_samples"), [(3, 0), (3, 2), (0, 1)])
def test_without_a_place_for_those_by_rho_the_others_are_the_same(samples, prior_samples, valued):
    mu, rho, keep = weights((41, 17), pruned=True)
    grad_w, mixture = normal(samples, 41, 17) if samples else None, KBC if prior_samples else None
    out, alone = normal(2, 41, 17), torch.empty_like(mu)
    args = (mu, rho, keep, seed(), 3, grad_w, None, prior_samples, mixture, 0.1, 0.2)
    sums = fused.gradients(*args, *out, NEW, valued)
    sums_alone = fused.gradients(*args, alone, None, NEW, valued)
    assert torch.equal(alone, out[0])
    assert torch.equal(sums_alone[:, : 1 + valued], sums[:, : 1 + valued])


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_a_frozen_sigma_has_no_gradient_and_changes_none(monkeypatch, estimator, temperature):
    monkeypatch.setattr(launch, "available", lambda device: True)
    torch.manual_seed(0)
    net = to_bayesian(nn.Sequential(nn.Linear(6, 70), nn.ReLU(), nn.Linear(70, 3))).to(DEVICE)
    x, y, found = normal(5, 6), torch.randint(3, (5,), device=DEVICE), []
    for is_frozen in (False, True):
        for _, g in gaussians(net):
            g.rho.requires_grad_(not is_frozen)
        net.zero_grad()
        generator = torch.Generator(DEVICE).manual_seed(0)
        elbo = ELBO(30, temperature=temperature, samples=3, estimator=estimator, stack=True, generator=generator)
        measured = {}
        elbo.add_gradients(net, x, y, measured)
        found.append({n: p.grad for n, p in net.named_parameters() if p.grad is not None})
        for parameter, sums in measured.items():
            close(sums.sum(), parameter.grad.double().square().sum())
    learning, frozen = found
    assert frozen.keys() == {name for name in learning if name.endswith("mu")}
    assert all(torch.equal(grad, learning[name]) for name, grad in frozen.items())


def test_gradients_add_to_what_is_there():
    mu, rho, keep = weights((41, 17), pruned=True)
    grad_w, before = normal(3, 41, 17), normal(2, 41, 17)
    alone, added = torch.empty_like(before), before.clone()
    for out, add in ((alone, NEW), (added, (True, True))):
        fused.gradients(mu, rho, keep, seed(), 3, grad_w, None, 2, KBC, 0.1, 0.2, *out, add)
    close(added, before + alone)
    half = before.clone()
    fused.gradients(mu, rho, keep, seed(), 3, grad_w, None, 2, KBC, 0.1, 0.2, *half, (True, False))
    assert torch.equal(half, torch.stack([added[0], alone[1]]))
    assert torch.equal(added[:, ~keep], before[:, ~keep])


def test_gradients_hold_for_spreads_of_every_size():
    rho = torch.tensor([-1000, -200, -90, -50, -17, -5, -1e-3, 0, 1e-3, 1, 20, 90, 1000], device=DEVICE).float()
    mu, out_mu, out_rho = torch.zeros_like(rho), torch.empty_like(rho), torch.empty_like(rho)
    _, log_sigma = fused.gradients(mu, rho, None, seed(), 0, None, None, 0, None, 0.0, 1.0, out_mu, out_rho, NEW).sum(0)
    wide = rho.double()
    sigma = F.softplus(wide).clamp_min(1e-300)
    close(-out_rho, torch.where(wide < -50, 1.0, wide.sigmoid() / sigma))
    close(log_sigma, torch.where(wide < -50, wide, sigma.log()).sum())


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # the interpreter's, of c * w^2
@pytest.mark.parametrize("w", [0.0, 1e-4, 3.0, 1e4, 1e18])
def test_the_mixture_holds_for_weights_of_every_size(w):
    prior = ScaleMixture()  # its narrow component makes c -81000
    mu = torch.full((3,), w, device=DEVICE)
    rho, out = torch.full_like(mu, -100), torch.empty(2, 3, device=DEVICE)
    log_p, _ = fused.gradients(
        mu, rho, None, seed(), 0, None, None, 1, (prior.k, prior.b, prior.c), 1.0, 0.0, *out, NEW
    ).sum(0)
    wide = mu.double()
    close(out[0], prior.score(wide), rtol=1e-5)
    close(log_p, (prior.log_prob(wide) - prior.a).sum(), rtol=1e-5)


def test_a_pruned_weights_bad_gradient_does_no_harm():
    mu, rho, _ = weights((6,))
    keep = torch.tensor([True, False] * 3, device=DEVICE)
    grad_w, grad_square = normal(3, 6).masked_fill(~keep, torch.nan).split([2, 1])
    out = torch.empty(2, 6, device=DEVICE)
    sums = fused.gradients(mu, rho, keep, seed(), 3, grad_w, grad_square[0], 2, KBC, 0.1, 0.2, *out, NEW).sum(0)
    assert out.isfinite().all()
    assert sums.isfinite().all()
    assert (out[:, ~keep] == 0).all()


@pytest.mark.parametrize(("shape", "samples", "pruned"), CASES)
def test_sampled_weights_pass_gradients_on(shape, samples, pruned):
    mu, rho, keep = weights(shape, pruned)
    factors = normal(samples, *shape)
    m, r = mu.clone().requires_grad_(), rho.clone().requires_grad_()
    w = fused.sample_weights(m, r, keep, seed(), 3, samples)
    (w * factors).sum().backward()
    # the noise that forward used, read off its weights: backward must have made the same again
    eps = ((w.detach().double() - mu) / F.softplus(rho.double())).nan_to_num()
    m64, r64 = mu.double().requires_grad_(), rho.double().requires_grad_()
    (reference.sample(m64, r64, keep, eps) * factors).sum().backward()
    close(m.grad, m64.grad)
    close(r.grad, r64.grad, rtol=1e-3, atol=1e-4)


def test_a_seed_that_changes_before_backward_is_noticed():
    mu, rho, _ = weights((6,))
    key = seed()
    w = fused.sample_weights(mu.requires_grad_(), rho, None, key, 0, 2)
    key += 1
    with pytest.raises(RuntimeError, match="inplace"):
        w.sum().backward()


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (30, 19), (4, 1)])
@pytest.mark.parametrize("samples", SAMPLES)
def test_local_noise_follows_the_reference_and_autograd(shape, samples):
    mean, variance = normal(*shape), normal(*shape).square()
    variance.view(-1)[::4] = 0
    factors = normal(shape[0] * samples, shape[1])
    m, v = mean.clone().requires_grad_(), variance.clone().requires_grad_()
    out = fused.local_noise(m, v, seed(), 3, samples)
    (out * factors).sum().backward()
    eps = noise(shape, samples).double()
    m64, v64 = mean.double().requires_grad_(), variance.double().requires_grad_()
    expected = reference.local_noise(m64, v64, eps)
    (expected * factors).sum().backward()
    close(out, expected)
    close(m.grad, m64.grad)
    close(v.grad, v64.grad, rtol=1e-4)
    assert (v.grad[variance == 0] == 0).all()
    row = out.view(shape[0], samples, shape[1])[-1, -1]
    close(row, mean[-1] + variance[-1].sqrt() * eps[-1, -1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pruned", [False, True])
def test_sigma_squared_and_its_gradient(shape, pruned):
    _, rho, keep = weights(shape, pruned)
    r, r64, factors = rho.clone().requires_grad_(), rho.double().requires_grad_(), normal(*shape)
    squared, expected = fused.sigma_squared(r, keep), reference.sigma_squared(r64, keep)
    close(squared, expected, rtol=1e-5, atol=0)
    (squared * factors).sum().backward()
    (expected * factors).sum().backward()
    close(r.grad, r64.grad, rtol=1e-5, atol=1e-12)
