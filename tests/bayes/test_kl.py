import pytest
import torch
from torch import nn

from tests.bayes.test_priors import quadrature
from ucb.bayes import Normal, ScaleMixture, gaussians, kl_divergence, to_bayesian


@pytest.fixture
def net():
    return to_bayesian(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), spread=0.8).double()


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
