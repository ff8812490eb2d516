"""Rates that follow sigma all the time, for streams whose tasks have no boundaries."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ucb.bayes import ELBO, ScaleMixture, gaussians, to_bayesian
from ucb.optim import UCB, UCBNG, RateScale, UniformLR, param_groups


def one_layer():
    torch.manual_seed(0)
    net = to_bayesian(nn.Sequential(nn.Linear(4, 3)))
    for _, gaussian in gaussians(net):
        gaussian.set_sigma(torch.rand_like(gaussian.mu) * 0.3 + 0.05)
    return net, torch.randn(20, 4), torch.randint(3, (20,))


def step(net, optimizer, x, y):
    optimizer.zero_grad()
    ELBO(20, ScaleMixture(), samples=2).backward(net, x, y)
    optimizer.step()


def test_every_step_moves_a_mean_by_its_present_sigma():
    net, x, y = one_layer()
    optimizer = UCB(param_groups(net), 0.5, rho_lr=5.0, scale=RateScale(gain=2.0), continuous=True)
    for _ in range(3):
        before = {name: (g.mu.detach().clone(), g.sigma.detach().clone()) for name, g in gaussians(net)}
        step(net, optimizer, x, y)
        for name, gaussian in gaussians(net):
            mu, sigma = before[name]
            rate = 0.5 * (2.0 * sigma).clamp_max(1)
            torch.testing.assert_close(mu - gaussian.mu, rate * gaussian.mu.grad)
            assert not torch.equal(sigma, gaussian.sigma)  # so the next step's rate is another


def test_weights_that_rest_cost_nothing():
    """With a head for each task the others rest, and a step must not become slower with every one of them."""
    net, x, y = one_layer()
    resting = to_bayesian(nn.Linear(3, 2))
    optimizer = UCB([*param_groups(net), *param_groups(resting, "resting.")], continuous=True)
    step(net, optimizer, x, y)
    assert all("scale" in optimizer.state[g.mu] for _, g in gaussians(net))
    assert all("scale" not in optimizer.state.get(g.mu, {}) for _, g in gaussians(resting))


def test_the_control_follows_the_layers_mean():
    net, x, y = one_layer()
    optimizer = UniformLR(param_groups(net), 0.5, scale=RateScale(gain=2.0, cap=None), continuous=True)
    before = {name: (g.mu.detach().clone(), g.sigma.detach().clone()) for name, g in gaussians(net)}
    step(net, optimizer, x, y)
    mean = 2.0 * torch.cat([sigma.flatten() for _, sigma in before.values()]).mean()
    for name, gaussian in gaussians(net):
        torch.testing.assert_close(before[name][0] - gaussian.mu, 0.5 * mean * gaussian.mu.grad)


def test_rates_cannot_follow_and_accumulate():
    with pytest.raises(ValueError, match=r"continuous.*cumulative"):
        UCB(param_groups(one_layer()[0]), cumulative=True, continuous=True)


def test_one_pass_without_boundaries_gathers_the_precision_of_a_task():
    """With a curvature that is always c, N examples in batches of B add N c / T."""
    net = to_bayesian(nn.Sequential(nn.Linear(2, 1, bias=False))).double()
    (_, gaussian), size, batch, temperature, c = next(gaussians(net)), 1000, 10, 0.5, 3.0
    optimizer = UCBNG(param_groups(net), size, 0.1, temperature=temperature, beta=0.5, prior_sigma=0.02)
    optimizer.begin(size, batch)
    expected = torch.full_like(gaussian.mu, 0.02**-2)
    for _ in range(size // batch):
        sigma = gaussian.sigma.detach()
        torch.testing.assert_close(sigma, expected.rsqrt())
        gaussian.mu.grad = torch.ones_like(gaussian.mu)
        optimizer.add_curvature([gaussian.mu], [torch.full_like(gaussian.mu, (batch * c) ** 0.5)], batch)
        mu = gaussian.mu.detach().clone()
        optimizer.step()
        expected = expected + batch * c / temperature
        torch.testing.assert_close(mu - gaussian.mu, 0.1 * (expected.rsqrt() / 0.02).clamp_max(1))
    torch.testing.assert_close(expected, torch.full_like(expected, 0.02**-2 + size * c / temperature))
    before = F.softplus(gaussian.rho.detach()).clone()
    optimizer.consolidate()  # adds nothing twice
    torch.testing.assert_close(gaussian.sigma, before)
