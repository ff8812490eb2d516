"""Vadam's step against numbers worked out by hand, and its spread against the formula."""

import copy

import pytest
import torch
from torch import nn

from ucb.bayes import ELBO, GaussianLikelihood, to_bayesian
from ucb.optim import param_groups
from ucb.optim.adam import Vadam


def two_weights(mu, sigma):
    net = to_bayesian(nn.Linear(2, 1, bias=False))
    weight = net.posterior["weight"]
    with torch.no_grad():
        weight.mu.copy_(torch.tensor([mu]))
    weight.set_sigma(torch.tensor([sigma]))
    return net, weight


def test_two_steps_and_a_new_task_by_hand(double):
    """lambda = 4 and N = 10, so lambda / N = 0.4. The first step's corrected moments are slope and g^2 themselves."""
    net, weight = two_weights([1.0, -0.5], [0.5, 0.5])
    optimizer = Vadam(param_groups(net), 10, lr=0.1)
    weight.mu.grad = torch.tensor([[0.3, -0.6]])
    optimizer.step()
    # (0.3 + 0.4) / (0.3 + 0.4) = 1 and (-0.6 - 0.2) / (0.6 + 0.4) = -0.8
    torch.testing.assert_close(weight.mu.detach(), torch.tensor([[0.9, -0.42]]))
    # 1 / sigma^2 = 10 * 0.001 * g^2 + 4
    torch.testing.assert_close(weight.sigma.detach() ** -2, torch.tensor([[4.0009, 4.0036]]))
    optimizer.step()
    # first weight: m = 0.9 * 0.07 + 0.1 * (0.3 + 0.4 * 0.9) = 0.129, over 0.19; s = 0.09 (1 - 0.999^2)
    # second: m = 0.9 * -0.08 + 0.1 * (-0.6 - 0.4 * 0.42) = -0.1488
    expected = torch.tensor([[0.9 - 0.1 * (0.129 / 0.19) / 0.7, -0.42 + 0.1 * (0.1488 / 0.19) / 1.0]])
    torch.testing.assert_close(weight.mu.detach(), expected)
    gathered = 10 * (1 - 0.999**2)
    precision = torch.tensor([[4 + gathered * 0.09, 4 + gathered * 0.36]])
    torch.testing.assert_close(weight.sigma.detach() ** -2, precision)

    optimizer.consolidate()
    optimizer.begin(20)
    torch.testing.assert_close(weight.sigma.detach() ** -2, precision)
    with torch.no_grad():
        weight.mu.add_(2.0)
    weight.mu.grad = torch.tensor([[0.2, 0.0]])
    optimizer.step()
    delta = precision / 20  # every weight is pulled by its own precision to where the last task left it
    slope, size = torch.tensor([[0.2, 0.0]]) + 2 * delta, torch.tensor([[0.2, 0.0]]) + delta
    torch.testing.assert_close(weight.mu.detach(), expected + 2 - 0.1 * slope / size)


def test_at_a_temperature_the_data_counts_as_more_examples(double):
    nets = [two_weights([1.0, -0.5], [0.5, 0.1]) for _ in range(2)]
    for (net, weight), (size, temperature) in zip(nets, ((40, 1.0), (10, 0.25)), strict=True):
        optimizer = Vadam(param_groups(net), size, temperature=temperature)
        weight.mu.grad = torch.tensor([[0.3, -0.6]])
        optimizer.step()
        optimizer.consolidate()
        optimizer.step()
    for a, b in zip(nets[0][0].parameters(), nets[1][0].parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_spread_follows_the_size_of_the_perturbed_gradients(double):
    """A weight whose input is larger has larger gradients, and becomes surer; rho's own gradient plays no part."""
    net, weight = two_weights([0.0, 0.0], [0.1, 0.1])
    optimizer, square = Vadam(param_groups(net), 50, betas=(0.9, 0.9)), torch.zeros(1, 2)
    x = torch.randn(50, 2) * torch.tensor([1.0, 5.0])
    y = x.sum(1, keepdim=True)
    elbo = ELBO(50, likelihood=GaussianLikelihood(0.5), temperature=0)
    for _ in range(30):
        optimizer.zero_grad()
        elbo.backward(net, x, y)
        square = 0.9 * square + 0.1 * weight.mu.grad**2
        weight.rho.grad = torch.full_like(weight.rho, 1e6)
        optimizer.step()
        torch.testing.assert_close(weight.sigma.detach(), (50 * square + 100).rsqrt())
    assert weight.sigma[0, 1] < 0.5 * weight.sigma[0, 0]


@pytest.mark.filterwarnings("ignore:left deterministic")
def test_ordinary_parameters_take_adams_step(double):
    net = to_bayesian(nn.Sequential(nn.Linear(2, 2), nn.PReLU()))
    optimizer, slope = Vadam(param_groups(net), 10, lr=0.1), net[1].weight
    twin = nn.Parameter(slope.detach().clone())
    reference = torch.optim.Adam([twin], 0.1)
    for grad in (0.5, -2.0, 0.1):
        slope.grad, twin.grad = torch.tensor([grad]), torch.tensor([grad])
        optimizer.step()
        reference.step()
    torch.testing.assert_close(slope, twin)


def test_loading_the_state_continues_bit_for_bit():
    x, y = torch.randn(20, 4), torch.randn(20, 1)

    def train(net, optimizer, seed):
        elbo = ELBO(
            20, likelihood=GaussianLikelihood(0.5), temperature=0, generator=torch.Generator().manual_seed(seed)
        )
        for _ in range(5):
            optimizer.zero_grad()
            elbo.backward(net, x, y)
            optimizer.step()

    def build():
        net = to_bayesian(nn.Linear(4, 1))
        return net, Vadam(param_groups(net), 20, lr=0.01)

    net, optimizer = build()
    train(net, optimizer, 1)
    optimizer.consolidate()
    train(net, optimizer, 2)
    other, other_optimizer = build()
    other.load_state_dict(copy.deepcopy(net.state_dict()))
    other_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for pair in ((net, optimizer), (other, other_optimizer)):
        train(*pair, 3)
        pair[1].consolidate()
        train(*pair, 4)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"num_examples": 0}, "training examples"),
        ({"num_examples": 9, "lr": 0}, "lr"),
        ({"num_examples": 9, "temperature": 0}, "temperature"),
    ],
)
def test_bad_options_are_refused(options, word):
    with pytest.raises(ValueError, match=word):
        Vadam(param_groups(to_bayesian(nn.Linear(2, 2))), **options)
