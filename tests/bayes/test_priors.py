import math

import numpy as np
import pytest
import torch
from torch import nn

from ucb.bayes import Normal, PreviousPosterior, ScaleMixture, gaussians, kl_divergence, to_bayesian

MIXTURES = [(pi, math.exp(-a), math.exp(-b)) for pi in (0.25, 0.5, 0.75) for a in (0, 1, 2) for b in (6, 7, 8)]


def reference_log_prob(w, pi, sigma_1, sigma_2):
    """The mixture by its definition, in double precision, with log-sum-exp."""
    zero = torch.zeros((), dtype=w.dtype)
    first = torch.distributions.Normal(zero, zero + sigma_1).log_prob(w) + math.log(pi)
    second = torch.distributions.Normal(zero, zero + sigma_2).log_prob(w) + math.log(1 - pi)
    return torch.logaddexp(first, second)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_mixture_is_its_definition_on_the_papers_grid(mixture):
    w = torch.cat([torch.zeros(1), torch.logspace(-6, 4, 200)]).double()
    torch.testing.assert_close(
        ScaleMixture(*mixture).log_prob(w), reference_log_prob(w, *mixture), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("mixture", [*MIXTURES, (0.5, 0.01, 1.0), (0.5, 1.0, 1.0)])
def test_mixture_stays_finite_and_right_in_single_precision(mixture):
    w = torch.cat([torch.zeros(1), torch.logspace(-6, 4, 200), -torch.logspace(-6, 4, 200)])
    prior = ScaleMixture(*mixture)
    assert prior.log_prob(w).isfinite().all()
    assert prior.score(w).isfinite().all()
    exact = reference_log_prob(w.double(), *mixture)
    torch.testing.assert_close(prior.log_prob(w).double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("prior", [ScaleMixture(0.25, 1.0, 0.01), Normal(0.3, 0.1), Normal(torch.tensor(0.5))])
def test_score_is_the_derivative(prior):
    w = torch.linspace(-3, 3, 101, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(prior.log_prob(w).sum(), w)
    torch.testing.assert_close(prior.score(w.detach()), slope)
    step = 1e-6
    numeric = (prior.log_prob(w + step) - prior.log_prob(w - step)) / (2 * step)
    torch.testing.assert_close(slope, numeric.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "prior",
    [
        ScaleMixture(0.25, 1.0, 0.01),
        ScaleMixture(1e-20, 1.0, 1e-17),
        ScaleMixture(0.25, 1.0, 1e-13),
        ScaleMixture(0.5, 1.0, 1.0),
        Normal(0.3),
    ],
)
def test_add_score_adds_in_place_and_returns_the_sum(prior, dtype):
    w, start = torch.randn(300, 700, dtype=dtype), torch.randn(300, 700, dtype=dtype)
    grad = start.clone()
    total = prior.add_score(w, grad, -0.25)
    torch.testing.assert_close(grad, start - 0.25 * prior.score(w), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(total, prior.log_prob(w.double()).sum().to(dtype), rtol=1e-4, atol=1e-2)


def quadrature(function, mean, sigma, points=80):
    """E f(w) for w ~ N(mean, sigma^2) by Gauss and Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return sum(float(w) * function(mean + sigma * x) for x, w in zip(nodes, weights, strict=True)) / math.sqrt(
        2 * math.pi
    )


def test_gaussian_expectation_and_its_derivatives_are_exact():
    prior = Normal(torch.tensor([0.5, 2.0]).double(), torch.tensor([0.1, -0.3]).double())
    mean, sigma = torch.tensor([0.7, -1.0]).double(), torch.tensor([0.3, 1.5]).double()
    torch.testing.assert_close(prior.expected_log_prob(mean, sigma), quadrature(prior.log_prob, mean, sigma))
    one = Normal(0.5, 0.1)
    for p in (prior, one):
        grad_mean, grad_sigma = torch.ones(2).double(), torch.ones(2).double()
        total = p.add_expected_score(mean, sigma, grad_mean, grad_sigma, 2.0)
        m, s = mean.clone().requires_grad_(), sigma.clone().requires_grad_()
        expected = p.expected_log_prob(m, s).sum()
        by_m, by_s = torch.autograd.grad(expected, (m, s))
        torch.testing.assert_close(total, expected.detach())
        torch.testing.assert_close(grad_mean, 1 + 2 * by_m)
        torch.testing.assert_close(grad_sigma, 1 + 2 * by_s)


def test_previous_posterior_is_nearest_to_itself():
    net = to_bayesian(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))).double()
    prior = PreviousPosterior(net)
    kl = kl_divergence(net, prior)
    kl.backward()
    torch.testing.assert_close(kl, torch.zeros(()).double(), rtol=0, atol=1e-12)
    for _, gaussian in gaussians(net):
        torch.testing.assert_close(gaussian.mu.grad, torch.zeros_like(gaussian.mu), rtol=0, atol=1e-12)
        torch.testing.assert_close(gaussian.rho.grad, torch.zeros_like(gaussian.rho), rtol=0, atol=1e-12)
    with torch.no_grad():
        net[0].posterior["weight"].mu += 1
    assert kl_divergence(net, prior) > 1


def test_previous_posterior_knows_new_weights_and_its_state():
    net = to_bayesian(nn.Sequential(nn.Linear(3, 4)))
    prior = PreviousPosterior(net, otherwise=Normal(7.0))
    assert float(prior.of("3.weight").scale) == 7.0
    fresh = PreviousPosterior(to_bayesian(nn.Sequential(nn.Linear(3, 4))), otherwise=Normal(7.0))
    fresh.load_state_dict(prior.state_dict())
    assert torch.equal(fresh.of("0.weight").mean, net[0].posterior["weight"].mu)
    with pytest.raises(TypeError, match="of"):
        prior.log_prob(torch.zeros(1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScaleMixture(0.0),
        lambda: ScaleMixture(1.0),
        lambda: ScaleMixture(0.5, -1.0),
        lambda: ScaleMixture(0.5, 1.0, 0.0),
        lambda: ScaleMixture(0.5, 1.0, 1e-20),
        lambda: Normal(0.0),
        lambda: Normal(torch.tensor([1.0, -1.0])),
        lambda: Normal(float("nan")),
    ],
)
def test_impossible_priors_are_refused(make):
    with pytest.raises(ValueError, match=r"must be|too small"):
        make()
