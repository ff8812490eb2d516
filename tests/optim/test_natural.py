"""UCB-NG against the exact posterior of linear models, where its curvature is known."""

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from ucb.bayes import ELBO, GaussianLikelihood, gaussians, mean_forward, to_bayesian
from ucb.optim import UCBNG, param_groups

NOISE = 0.5


def see(optimizer, gradients, rows=1):
    """Let the optimiser observe gradients of the one weight tensor that it has, and step."""
    (mu,) = optimizer.learning_means()
    optimizer.add_curvature([mu], [gradients], rows)
    optimizer.step()


def test_the_curvature_is_a_running_mean_of_squares_that_owes_nothing_to_its_start(double):
    net = to_bayesian(nn.Linear(5, 1, bias=False))
    optimizer = UCBNG(param_groups(net), 100, beta=0.1)
    mu = net.posterior["weight"].mu
    found = torch.randn(12, 1, 5)
    for t, gradient in enumerate(found, start=1):
        see(optimizer, gradient, rows=4)
        weights = 0.9 ** torch.arange(t - 1, -1, -1.0)
        expected = (weights[:, None, None] * found[:t] ** 2 / 4).sum(0) / weights.sum()
        torch.testing.assert_close(optimizer.state[mu]["curvature"], expected)


def test_neither_clipping_nor_the_gradient_of_sigma_is_read_as_curvature():
    sigmas = []
    for factor in (1.0, 0.01):
        net = to_bayesian(nn.Linear(4, 1, bias=False))
        optimizer = UCBNG(param_groups(net), 60, prior_sigma=0.1)
        weight = net.posterior["weight"]
        weight.mu.grad, weight.rho.grad = factor * torch.ones(1, 4), factor * torch.ones(1, 4)
        see(optimizer, torch.ones(1, 4))
        sigmas.append(weight.sigma.detach())
    assert torch.equal(*sigmas)


def test_a_step_that_observed_nothing_is_refused():
    net = to_bayesian(nn.Linear(4, 2))
    optimizer, elbo = UCBNG(param_groups(net), 40), ELBO(40, temperature=0)
    elbo.backward(net, torch.randn(8, 4), torch.zeros(8, dtype=torch.long))
    with pytest.raises(RuntimeError, match=r"observe\(objective, net, x\)"):
        optimizer.step()
    optimizer.observe(elbo, net, torch.randn(8, 4))
    optimizer.step()
    with pytest.raises(RuntimeError, match="observe"):
        optimizer.step()


def test_what_is_measured_does_not_depend_on_what_was_seen_on_the_way(double):
    """It is the exact diagonal Fisher, to within 4 standard errors of an eighth."""
    torch.manual_seed(0)
    net = to_bayesian(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))
    x, elbo = torch.randn(50, 4), ELBO(40, temperature=0)
    exact = exact_fisher(net, x)
    for steps in (0, 7):
        optimizer = UCBNG(param_groups(net), 40, lr=1e-12)
        for _ in range(steps):
            optimizer.observe(elbo, net, 10 * x)
            optimizer.step()
        optimizer.measure(elbo, net, x)
        for name, g in gaussians(net):
            ratio = optimizer.state[g.mu]["curvature"] / exact[name]
            assert (ratio - 1).abs().max() < 4 / 8, name
            assert abs(ratio.mean() - 1) < 0.15


def exact_fisher(net, x):
    """The mean over examples of sum_c p_c (d log p_c / dmu)^2, one gradient after the other."""
    found = {name: torch.zeros_like(g.mu) for name, g in gaussians(net)}
    for row in x:
        log_p = mean_forward(net, row.unsqueeze(0)).log_softmax(1)[0]
        for each in log_p:
            gradients = torch.autograd.grad(each, [g.mu for _, g in gaussians(net)], retain_graph=True)
            for total, gradient in zip(found.values(), gradients, strict=True):
                total += each.detach().exp() * gradient**2 / len(x)
    return found


def test_several_looks_before_a_step_count_as_one(double):
    net = to_bayesian(nn.Linear(4, 1, bias=False))
    optimizer = UCBNG(param_groups(net), 60)
    (mu,) = optimizer.learning_means()
    a, b = torch.randn(2, 1, 4)
    optimizer.add_curvature([mu], [a], 3)
    see(optimizer, b, 5)
    torch.testing.assert_close(optimizer.state[mu]["curvature"], (a + b) ** 2 / 8)


def test_a_state_of_the_old_curvature_is_refused_with_a_sentence():
    net = to_bayesian(nn.Linear(4, 2))
    state = UCBNG(param_groups(net), 40).state_dict()
    for kept in state["state"].values():
        kept.pop("seen", None)
    with pytest.raises(ValueError, match="earlier version"):
        UCBNG(param_groups(net), 40).load_state_dict(state)


def orthogonal_task(rows, weights, seed):
    """Inputs whose columns are orthogonal, so that the exact posterior is diagonal."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor([0.5, 1.0, 2.0, 4.0]) * math.sqrt(rows)
    x = torch.linalg.qr(torch.randn(rows, 4, generator=generator)).Q * size
    return x, x @ weights + NOISE * torch.randn(rows, 1, generator=generator)


def learn(net, optimizer, x, y, estimator="local", steps=1500):
    elbo = ELBO(
        len(x), likelihood=GaussianLikelihood(NOISE), temperature=0, samples=16, estimator=estimator, stack=True
    )
    for _ in range(steps):
        optimizer.zero_grad()
        elbo.backward(net, x, y)
        optimizer.observe(elbo, net, x)
        optimizer.step()


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
def test_sigma_becomes_the_exact_posteriors_task_after_task(double, estimator):
    """Tasks of different size: precisions add up in absolute terms. At temperature T the data counts 1/T as much."""
    temperature, prior_sigma = 0.5, 0.3
    net = to_bayesian(nn.Linear(4, 1, bias=False))
    optimizer = UCBNG(param_groups(net), 60, lr=0.01, temperature=temperature, prior_sigma=prior_sigma, beta=0.02)
    precision = torch.full((4,), prior_sigma**-2)
    weight = net.posterior["weight"]
    torch.testing.assert_close(weight.sigma[0], precision.rsqrt())
    for task, rows in enumerate((60, 20, 100)):
        x, y = orthogonal_task(rows, torch.randn(4, 1), task)
        optimizer.begin(rows)
        learn(net, optimizer, x, y, estimator)
        precision = precision + x.square().sum(0) / NOISE**2 / temperature
        torch.testing.assert_close(weight.sigma[0].detach(), precision.rsqrt(), rtol=0.1, atol=0)
        optimizer.consolidate()
        torch.testing.assert_close(weight.sigma[0].detach(), precision.rsqrt(), rtol=0.1, atol=0)
        expected = (weight.sigma / prior_sigma).detach().clamp_max(1)
        torch.testing.assert_close(optimizer.state[weight.mu]["scale"], expected)


def test_the_mean_fits_and_the_pull_makes_it_the_posterior_mean(double):
    """Without the pull the mean is the least-squares one; with it, the exact posterior's under a prior around the means
    that the task started with, never around 0."""
    weights = torch.tensor([[2.0], [-1.0], [0.5], [1.0]])
    x, y = orthogonal_task(30, weights, 0)
    prior_sigma = 0.1
    fits, start = {}, nn.Linear(4, 1, bias=False)
    for pull in (False, True):
        net = to_bayesian(start)
        optimizer = UCBNG(
            param_groups(net), 30, lr=0.01, temperature=1.0, prior_sigma=prior_sigma, beta=0.01, pull=pull
        )
        learn(net, optimizer, x, y, steps=3000)
        fits[pull] = net.posterior["weight"].mu.detach().clone()
    least_squares = torch.linalg.lstsq(x, y).solution.T
    torch.testing.assert_close(fits[False], least_squares, rtol=0, atol=0.03)
    likelihood = x.square().sum(0) / NOISE**2
    trust = likelihood / (likelihood + prior_sigma**-2)
    shrunk = trust * least_squares + (1 - trust) * start.weight.detach()
    torch.testing.assert_close(fits[True], shrunk, rtol=0, atol=0.03)
    optimizer.consolidate()
    torch.testing.assert_close(optimizer.state[net.posterior["weight"].mu]["anchor"], fits[True])


def test_the_prior_spread_is_by_default_each_layers_own_start():
    net = to_bayesian(nn.Sequential(nn.Linear(100, 10), nn.Linear(10, 2)), init_std_ratio=0.1)
    start = {name: g.sigma.detach().clone() for name, g in gaussians(net)}
    UCBNG(param_groups(net), 50)
    for name, gaussian in gaussians(net):
        torch.testing.assert_close(gaussian.sigma.detach(), start[name], rtol=1e-4, atol=0)
    assert start["0.weight"].mean() < 0.5 * start["1.weight"].mean()


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_after_a_task_the_rate_follows_sigma_to_a_power(double, power):
    net = to_bayesian(nn.Linear(4, 1, bias=False))
    optimizer = UCBNG(param_groups(net), 60, lr=0.01, temperature=0.5, prior_sigma=0.3, beta=0.02, power=power)
    x, y = orthogonal_task(60, torch.ones(4, 1), 0)
    learn(net, optimizer, x, y, steps=300)
    optimizer.consolidate()
    weight = net.posterior["weight"]
    sigma, before = weight.sigma.detach().clone(), weight.mu.detach().clone()
    weight.mu.grad = torch.ones_like(before)
    see(optimizer, torch.zeros_like(before))
    assert sigma.min() > 0.01  # it has learnt, and not diverged
    torch.testing.assert_close(before - weight.mu, 0.01 * (sigma / 0.3) ** power)


def test_the_control_tells_no_weight_from_another_and_learns_as_fast_in_the_mean(double):
    start, scales, sigmas = nn.Linear(4, 1, bias=False), [], []
    x, y = orthogonal_task(60, torch.ones(4, 1), 0)
    for uniform in (False, True):
        net = to_bayesian(copy.deepcopy(start))
        optimizer = UCBNG(param_groups(net), 60, 0.01, temperature=0.5, prior_sigma=0.3, beta=0.02, uniform=uniform)
        torch.manual_seed(0)
        learn(net, optimizer, x, y, steps=300)
        optimizer.consolidate()
        scales.append(optimizer.state[net.posterior["weight"].mu]["scale"])
        sigmas.append(net.posterior["weight"].sigma.detach())
    assert scales[0].std() > 0.01
    torch.testing.assert_close(sigmas[0], sigmas[1])
    torch.testing.assert_close(scales[1], scales[0].mean().expand_as(scales[0]))


@pytest.mark.parametrize("net_first", [True, False])
def test_loading_the_state_continues_bit_for_bit(net_first):
    x, y = orthogonal_task(40, torch.ones(4, 1), 0)

    def build():
        net = to_bayesian(nn.Linear(4, 1))
        return net, UCBNG(param_groups(net), 40, lr=0.005, beta=0.01, pull=True)

    def train(net, optimizer, seed):
        elbo = ELBO(
            40, likelihood=GaussianLikelihood(NOISE), temperature=0, generator=torch.Generator().manual_seed(seed)
        )
        for _ in range(20):
            optimizer.zero_grad()
            elbo.backward(net, x, y)
            optimizer.observe(elbo, net, x)
            optimizer.step()

    net, optimizer = build()
    train(net, optimizer, 1)
    optimizer.consolidate()
    optimizer.begin(25)
    train(net, optimizer, 2)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    train(net, optimizer, 3)
    optimizer.consolidate()
    other = to_bayesian(nn.Linear(4, 1))
    if net_first:
        other.load_state_dict(saved[0])
    other_optimizer = UCBNG(param_groups(other), 40, lr=0.005, beta=0.01, pull=True)
    if not net_first:
        other.load_state_dict(saved[0])
    other_optimizer.load_state_dict(saved[1])
    train(other, other_optimizer, 3)
    other_optimizer.consolidate()
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert a.isfinite().all()
        assert torch.equal(a, b)


def test_a_task_must_be_ended_before_the_next_begins():
    net = to_bayesian(nn.Linear(4, 1))
    optimizer = UCBNG(param_groups(net), 40, lr=0.005)
    learn(net, optimizer, *orthogonal_task(40, torch.ones(4, 1), 0), steps=2)
    with pytest.raises(RuntimeError, match="consolidate"):
        optimizer.begin(10)
    optimizer.consolidate()
    optimizer.begin(10)


def test_gradients_of_rho_can_be_spared_and_nothing_learns_otherwise():
    learnt = []
    for sparing in (False, True):
        torch.manual_seed(0)
        net = to_bayesian(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
        net[0].posterior["bias"].rho.requires_grad_(False)
        optimizer, elbo = UCBNG(param_groups(net), 40), ELBO(40, temperature=0)
        learning = [p.requires_grad for p in net.parameters()]
        for _ in range(3):
            optimizer.zero_grad()
            with optimizer.skip_rho_gradients() if sparing else nullcontext():
                elbo.backward(net, torch.randn(8, 4), torch.zeros(8, dtype=torch.long))
            assert any(g.rho.grad is not None for _, g in gaussians(net)) != sparing
            optimizer.observe(elbo, net, torch.randn(8, 4))
            optimizer.step()
        assert [p.requires_grad for p in net.parameters()] == learning, "whatever was frozen before still is"
        learnt.append(net.state_dict())
    assert all(torch.equal(value, learnt[1][name]) for name, value in learnt[0].items())


def test_weights_that_are_not_to_learn_stay_as_they_are():
    net = to_bayesian(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)))
    net[0].requires_grad_(False)
    before = {n: p.detach().clone() for n, p in net[0].named_parameters()}
    optimizer = UCBNG(param_groups(net), 40, prior_sigma=0.7)
    learn(net, optimizer, *orthogonal_task(40, torch.ones(4, 1), 0), steps=3)
    optimizer.consolidate()
    assert all(torch.equal(p, before[n]) for n, p in net[0].named_parameters())


def test_single_precision_survives_very_certain_weights():
    net = to_bayesian(nn.Linear(4, 1, bias=False))
    optimizer = UCBNG(param_groups(net), 1_000_000, lr=1e-6, temperature=1e-4, prior_sigma=0.1, beta=0.05)
    x, y = orthogonal_task(64, torch.ones(4, 1), 0)
    learn(net, optimizer, x, y, steps=500)
    sigma = net.posterior["weight"].sigma
    exact = 1e-5 * NOISE / torch.tensor([[0.5, 1.0, 2.0, 4.0]])  # sigma^2 = T / (N h), h = size^2 / noise^2
    torch.testing.assert_close(sigma.detach(), exact, rtol=0.3, atol=0)


def test_a_new_head_starts_at_the_prior_and_the_base_rate(double):
    net, head = to_bayesian(nn.Linear(4, 3)), to_bayesian(nn.Linear(3, 2))
    optimizer = UCBNG(param_groups(net), 10, lr=0.5)
    optimizer.consolidate()
    for group in param_groups(head, "head."):
        optimizer.add_param_group(group)
    weight = head.posterior["weight"]
    before = weight.mu.detach().clone()
    weight.mu.grad = torch.ones_like(before)
    optimizer.add_curvature([weight.mu], [torch.zeros_like(before)], 1)
    optimizer.step()
    torch.testing.assert_close(before - weight.mu, torch.full_like(before, 0.5))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"num_examples": 0}, "training examples"),
        ({"num_examples": 9, "lr": 0}, "lr"),
        ({"num_examples": 9, "temperature": 0}, "temperature"),
        ({"num_examples": 9, "prior_sigma": -1}, "prior_sigma"),
        ({"num_examples": 9, "beta": 1.0}, "beta"),
        ({"num_examples": 9, "power": 0}, "power"),
    ],
)
def test_bad_options_are_refused(options, word):
    with pytest.raises(ValueError, match=word):
        UCBNG(param_groups(to_bayesian(nn.Linear(2, 2))), **options)
    with pytest.raises(ValueError, match="training examples"):
        UCBNG(param_groups(to_bayesian(nn.Linear(2, 2))), 5).begin(0)
