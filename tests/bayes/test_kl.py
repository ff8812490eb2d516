import pytest
import torch
from torch import nn

from tests.bayes import reference
from tests.bayes.test_priors import quadrature
from ucb import kernels
from ucb.bayes import ELBO, Normal, ScaleMixture, gaussians, kl_divergence, to_bayesian


@pytest.fixture
def net():
    return to_bayesian(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), init_std_ratio=0.8).double()


def test_gaussian_kl_is_torchs_own(net):
    expected = sum(
        torch.distributions.kl_divergence(
            torch.distributions.Normal(g.mu, g.sigma), torch.distributions.Normal(0.2, 0.7)
        ).sum()
        for _, g in gaussians(net)
    )
    torch.testing.assert_close(kl_divergence(net, Normal(0.7, 0.2)), expected)


def test_mixture_kl_by_samples_is_the_integral(net):
    prior = ScaleMixture(0.4, 1.0, 0.3)
    exact = 0.0
    for _, g in gaussians(net):
        mu, sigma = g.mu.detach(), g.sigma.detach()
        log_q = torch.distributions.Normal(mu, sigma).log_prob
        exact += (quadrature(log_q, mu, sigma) - quadrature(prior.log_prob, mu, sigma)).sum()
    estimates = torch.stack([kl_divergence(net, prior, 20).detach() for _ in range(200)])
    error = (estimates.mean() - exact) / (estimates.std() / 200**0.5)
    assert abs(float(error)) < 4


def test_frozen_and_pruned_weights_take_no_part(net):
    prior = Normal(0.5)
    whole = kl_divergence(net, prior)
    first, second = net[0], net[2]
    part = sum(kl_divergence(nn.Sequential(layer), prior) for layer in (first, second))
    torch.testing.assert_close(whole, part)
    second.requires_grad_(False)
    torch.testing.assert_close(kl_divergence(net, prior), kl_divergence(nn.Sequential(first), prior))
    keep = torch.rand(4, 5) > 0.5
    weight = first.posterior["weight"]
    before = kl_divergence(net, prior)
    lost = torch.distributions.kl_divergence(
        torch.distributions.Normal(weight.mu, weight.sigma), torch.distributions.Normal(0.0, 0.5)
    )[~keep].sum()
    weight.prune(keep)
    for p in (prior, ScaleMixture()):
        kl = kl_divergence(net, p)
        assert kl.isfinite()
        kl.backward()
        assert weight.mu.grad.isfinite().all()
        assert weight.rho.grad.isfinite().all()
        assert (weight.mu.grad[~keep] == 0).all()
    torch.testing.assert_close(kl_divergence(net, prior), before - lost)


def test_a_net_that_learns_nothing_has_no_kl(net):
    with pytest.raises(ValueError, match="no Gaussian weight"):
        kl_divergence(net.requires_grad_(False), Normal())


@pytest.mark.parametrize("prior", [Normal(0.5), ScaleMixture(0.25, 1.0, 0.1)])
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("rho", [-1e4, -200.0, -95.0, -88.0, -41.0, -39.0])
def test_a_spread_that_underflows_has_a_finite_gradient(prior, is_compiled, rho, monkeypatch):
    """The KL is -log sigma + ..., and d log sigma / d rho = 1 where sigma = exp(rho): the gradient is -weight there."""
    if not is_compiled:
        monkeypatch.setattr(kernels, "load_library", lambda: None)
    net = to_bayesian(nn.Linear(5, 3))
    for _, g in gaussians(net):
        nn.init.constant_(g.rho, rho)
    x, y = torch.randn(4, 5), torch.randint(3, (4,))
    elbo = ELBO(10, prior, samples=2, generator=torch.Generator().manual_seed(0))
    values = []
    for backward in (lambda: elbo.backward(net, x, y), lambda: elbo(net, x, y)):
        net.zero_grad()
        terms = backward()
        if terms.loss.requires_grad:
            terms.loss.backward()
        values.append(terms.kl)
        for _, g in gaussians(net):
            torch.testing.assert_close(g.rho.grad, torch.full_like(g.rho, -0.1), rtol=1e-5, atol=1e-6)
            assert g.mu.grad.isfinite().all()
    log_q = -18 * (rho + 0.5 + 0.5 * torch.tensor(2 * torch.pi).log())
    log_p = sum(prior.log_prob(g.mu).sum() for _, g in gaussians(net))
    for kl in values:
        torch.testing.assert_close(kl, (log_q - log_p).detach(), rtol=1e-5, atol=1e-3)


def test_the_reference_of_the_kernels_agrees_where_sigma_underflows():
    mu, rho = torch.randn(4), torch.tensor([-1e4, -95.0, -41.0, -3.0])
    by_mu, by_rho = torch.empty(4), torch.empty(4)
    mixture = ScaleMixture(0.25, 1.0, 0.1)
    numbers = (mixture.k, mixture.b, mixture.c)
    eps = torch.randn(1, 4)
    reference.gradients(mu, rho, None, eps, eps, None, 1, numbers, -0.1, 0.1, by_mu, by_rho, (False, False))
    torch.testing.assert_close(by_rho[:3], torch.full((3,), -0.1))
    assert by_rho.isfinite().all()
