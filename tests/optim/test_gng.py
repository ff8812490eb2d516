"""Gaussian natural gradients against numbers worked out by hand and the Fisher information of a Gaussian."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence

from ucb.bayes import to_bayesian
from ucb.optim import param_groups
from ucb.optim.adam import Adam
from ucb.optim.gng import GNG


def two_weights(sigma=(0.1, 0.2)):
    net = to_bayesian(nn.Linear(2, 1, bias=False))
    weight = net.posterior["weight"]
    weight.set_sigma(torch.tensor([sigma]))
    return net, weight


def test_a_step_by_hand(double):
    """Natural gradients of mu are 0.01 * 3 and 0.04 * -1; their root mean square is sqrt(0.00125)."""
    net, weight = two_weights()
    optimizer, before, rho = GNG(param_groups(net), 0.1), weight.mu.detach().clone(), weight.rho.detach().clone()
    by_sigma = torch.tensor([[2.0, 5.0]])
    chain = torch.tensor([[1 - math.exp(-0.1), 1 - math.exp(-0.2)]])  # dsigma / drho
    weight.mu.grad, weight.rho.grad = torch.tensor([[3.0, -1.0]]), by_sigma * chain
    optimizer.step()
    step = torch.tensor([[0.03, -0.04]]) / math.sqrt(0.00125)
    torch.testing.assert_close(weight.mu.detach(), before - 0.1 * step)
    # of sigma: 0.01 / 2 * 2 and 0.04 / 2 * 5, that is 0.01 and 0.1
    natural = torch.tensor([[0.01, 0.1]]) / chain
    torch.testing.assert_close(weight.rho.detach(), rho - 0.1 * natural / natural.square().mean().sqrt())


def test_the_second_step_has_momentum_and_one_second_moment_a_tensor(double):
    net, weight = two_weights()
    optimizer, before = GNG(param_groups(net), 0.1), weight.mu.detach().clone()
    for grad in ([[3.0, -1.0]], [[1.0, 2.0]]):
        weight.mu.grad = torch.tensor(grad)
        optimizer.step()
    first, second = torch.tensor([[0.03, -0.04]]), torch.tensor([[0.01, 0.08]])
    mean = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.9**2)
    size = (0.999 * 0.001 * 0.00125 + 0.001 * (0.0001 + 0.0064) / 2) / (1 - 0.999**2)
    expected = before - 0.1 * first / math.sqrt(0.00125) - 0.1 * mean / math.sqrt(size)
    torch.testing.assert_close(weight.mu.detach(), expected)


def test_the_direction_is_the_gradient_divided_by_the_fisher_information(double):
    """The Fisher information is the second derivative of KL(q || q') by q', at q' = q."""
    net, weight = two_weights(sigma=(0.3, 2.0))
    mu, rho = weight.mu.detach().clone(), weight.rho.detach().clone()

    def divergence(other_mu, other_rho):
        return kl_divergence(Normal(mu, F.softplus(rho)), Normal(other_mu, F.softplus(other_rho))).sum()

    fisher = torch.autograd.functional.hessian(divergence, (mu, rho))
    grads = torch.randn(2, 1, 2)
    weight.mu.grad, weight.rho.grad = grads.clone()
    GNG(param_groups(net), 0.1).step()
    for i, (now, then) in enumerate(((weight.mu, mu), (weight.rho, rho))):
        natural = torch.linalg.solve(fisher[i][i].reshape(2, 2), grads[i].flatten())
        moved = (then - now).detach().flatten()
        torch.testing.assert_close(moved / moved.norm(), natural / natural.norm())


def test_certain_weights_move_less_and_under_plain_adam_they_do_not(double):
    moved = {}
    for kind in (GNG, Adam):
        net, weight = two_weights()
        optimizer, before = kind(param_groups(net), 0.01), weight.mu.detach().clone()
        for _ in range(10):
            weight.mu.grad = torch.ones(1, 2)
            optimizer.step()
        moved[kind] = (before - weight.mu).detach()[0]
    torch.testing.assert_close(moved[GNG][1] / moved[GNG][0], torch.tensor(4.0))
    torch.testing.assert_close(moved[Adam][1] / moved[Adam][0], torch.tensor(1.0))


@pytest.mark.filterwarnings("ignore:left deterministic")
def test_ordinary_parameters_learn_and_a_task_s_end_drops_the_moments(double):
    net = to_bayesian(nn.Sequential(nn.Linear(2, 2), nn.PReLU(3)))
    optimizer, slope = GNG(param_groups(net), 0.1), net[1].weight
    for _ in range(2):
        before = slope.detach().clone()
        slope.grad = torch.tensor([3.0, 4.0, 0.0])
        optimizer.step()
        expected = torch.tensor([3.0, 4.0, 0.0]) / math.sqrt(25 / 3)
        torch.testing.assert_close((before - slope).detach(), 0.1 * expected)
        optimizer.consolidate()
        assert not optimizer.state
        slope.grad = -slope.grad


def test_a_bad_rate_is_refused():
    with pytest.raises(ValueError, match="lr"):
        GNG(param_groups(to_bayesian(nn.Linear(2, 2))), 0.0)
