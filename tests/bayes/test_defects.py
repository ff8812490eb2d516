"""Ways in which an implementation of UCB can look right and be wrong, found in code that was published for the paper.

Each check runs on our layers and must pass, and on a small imitation of the defect and must fail: a test that cannot
fail proves nothing.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ucb.bayes import ELBO, Normal, ScaleMixture, gaussians, kl_divergence, to_bayesian
from ucb.optim import UCB, UCBNG, param_groups


class Ours:
    """One linear layer of this package, seen through the few things that the checks ask for."""

    def __init__(self):
        self.layer = to_bayesian(nn.Linear(6, 4), init_std_ratio=0.5)
        weight = self.layer.posterior["weight"]
        self.mu, self.rho = weight.mu, weight.rho

    def silence(self):
        for _, gaussian in gaussians(self.layer):
            gaussian.set_sigma(torch.full_like(gaussian.mu, 1e-8))

    def kl(self, prior):
        return kl_divergence(self.layer, prior)

    def sampled_weight(self):
        return self.layer.posterior["weight"].sample()

    def loss(self, x, y, size):
        return ELBO(size, Normal())(self.layer, x, y).loss


class Defective:
    """A layer that computes sigma once (D2), cuts the KL's gradient (D1) and weighs both terms by hand (D7)."""

    def __init__(self):
        self.mu = nn.Parameter(0.1 * torch.randn(4, 6))
        self.rho = nn.Parameter(-1 + 0.1 * torch.randn(4, 6))
        self.sigma = F.softplus(self.rho.detach())

    def silence(self):
        self.sigma = torch.full_like(self.sigma, 1e-8)

    def kl(self, prior):
        w = self.sampled_weight()
        log_q = torch.as_tensor(torch.distributions.Normal(self.mu, self.sigma).log_prob(w).detach()).sum()
        return (log_q - torch.as_tensor(prior.log_prob(w).detach()).sum()).requires_grad_()

    def sampled_weight(self):
        return self.mu + self.sigma * torch.randn_like(self.sigma)

    def loss(self, x, y, size):
        nll = F.cross_entropy(F.linear(x, self.sampled_weight()), y, reduction="sum")
        return 1e-3 * self.kl(Normal()) + 5e-2 * nll


def kl_gradients_differ(model):
    """D1: another prior must give another gradient, on mu and on rho, and it must be the closed form's."""
    found = []
    for scale in (0.3, 3.0):
        model.mu.grad = model.rho.grad = None
        model.kl(Normal(scale)).backward()
        if model.mu.grad is None or model.rho.grad is None:
            return False
        sigma = F.softplus(model.rho.detach())
        by_sigma = -1 / sigma + sigma / scale**2
        torch.testing.assert_close(model.mu.grad, model.mu.detach() / scale**2)
        torch.testing.assert_close(model.rho.grad, by_sigma * torch.sigmoid(model.rho.detach()))
        found.append((model.mu.grad, model.rho.grad))
    return all(not torch.allclose(a, b) for a, b in zip(*found, strict=True))


def rho_moves_the_spread(model):
    """D2: raising rho must widen what is sampled, at once."""
    for rho in (-2.0, 2.0):
        with torch.no_grad():
            model.rho.fill_(rho)
        spread = torch.stack([model.sampled_weight().detach() for _ in range(400)]).std(0).mean()
        if abs(float(spread) / math.log1p(math.exp(rho)) - 1) > 0.1:
            return False
    return True


def loss_is_per_example(model):
    """D7: repeating every row changes nothing, since the NLL is a mean; ten times the data, a tenth of the KL."""
    model.silence()
    with torch.no_grad():
        x, y = torch.randn(5, 6), torch.randint(4, (5,))
        once, twice = model.loss(x, y, 100), model.loss(x.repeat(2, 1), y.repeat(2), 100)
        small, large = model.loss(x, y, 10), model.loss(x, y, 1000)
    return bool(torch.isclose(once, twice, rtol=1e-4)) and bool(small - once > 5 * (once - large))


@pytest.mark.parametrize("check", [kl_gradients_differ, rho_moves_the_spread, loss_is_per_example])
def test_each_defect_is_absent_here_and_would_be_seen(check):
    assert check(Ours())
    assert not check(Defective())


def correlation_with_start(optimizer_of, sigma_frozen=False):
    """D3: the correlation of every weight's log sigma after training with its random start."""
    net = to_bayesian(nn.Linear(20, 1, bias=False))
    weight = net.posterior["weight"]
    weight.set_sigma(0.3 * torch.exp(0.3 * torch.randn(1, 20)))
    start = weight.sigma.detach().log()
    size = torch.logspace(-1, 1, 20)  # how much the data says of each weight
    x = torch.randn(200, 20) * size
    y = (x.sum(1) > 0).long()

    def two_classes(output, target):
        return F.binary_cross_entropy_with_logits(output.squeeze(1), target.to(output.dtype))

    optimizer = optimizer_of(net)
    temperature = 0.0 if isinstance(optimizer, UCBNG) else 1.0

    def roots(output):
        p = output.detach().sigmoid()
        return (p * (1 - p)).sqrt() * output

    elbo = ELBO(200, Normal(0.3), two_classes, temperature=temperature, estimator="local", samples=4, roots=roots)
    for _ in range(600):
        optimizer.zero_grad()
        elbo.backward(net, x, y)
        if sigma_frozen:
            weight.rho.grad = None
        if isinstance(optimizer, UCBNG):
            optimizer.observe(elbo, net, x)
        optimizer.step()
    end = weight.sigma.detach().log()
    both = torch.cat([start, end])
    by_data = torch.corrcoef(torch.cat([size.log().unsqueeze(0), end]))[0, 1]
    return float(torch.corrcoef(both)[0, 1]), float(by_data)


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda net: torch.optim.Adam(net.parameters(), 0.02),
        lambda net: UCBNG(param_groups(net), 200, lr=0.01, temperature=1.0, beta=0.02),
    ],
)
def test_after_training_sigma_is_the_datas_and_not_the_starts(optimizer_of):
    with_start, with_data = correlation_with_start(optimizer_of)
    assert abs(with_start) < 0.6
    assert with_data < -0.8


def test_the_check_of_sigma_would_see_it_frozen():
    with_start, _ = correlation_with_start(lambda net: UCB(param_groups(net), 0.01), sigma_frozen=True)
    assert with_start > 0.999


def test_every_weight_gets_a_gradient_on_mean_and_spread():
    """Whatever the estimator: a parameter that autograd lost would stay where it started."""
    plain = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    x, y = torch.randn(8, 1, 6, 6), torch.randint(4, (8,))
    for estimator in ("weights", "local", "flipout"):
        for temperature in (0.0, 1.0):
            net = to_bayesian(plain)
            ELBO(10, ScaleMixture(), temperature=temperature, estimator=estimator, samples=2).backward(net, x, y)
            for name, gaussian in gaussians(net):
                assert gaussian.mu.grad.abs().sum() > 0, (estimator, name)
                assert gaussian.rho.grad.abs().sum() > 0, (estimator, name)
