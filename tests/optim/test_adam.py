"""Adam on Gaussian weights against PyTorch's own."""

import copy

import pytest
import torch
from torch import nn

from ucb.bayes import ELBO, Normal, to_bayesian
from ucb.optim import param_groups
from ucb.optim.adam import Adam


@pytest.mark.filterwarnings("ignore:left deterministic")
def test_it_is_adam_and_starts_afresh_after_a_task(double):
    net = to_bayesian(nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3)))
    twin = copy.deepcopy(net)
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    optimizer = Adam(param_groups(net), 0.01)
    for _ in range(2):
        reference = torch.optim.Adam(twin.parameters(), 0.01, foreach=False)
        for seed in range(5):
            for one, by in ((net, optimizer), (twin, reference)):
                by.zero_grad()
                elbo = ELBO(50, Normal(), samples=2, generator=torch.Generator().manual_seed(seed))
                elbo.backward(one, x, y)
                by.step()
        optimizer.consolidate()
        for a, b in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b)


def test_a_pruned_weight_stays_whatever_the_moments_remember():
    net = to_bayesian(nn.Linear(6, 3))
    weight, optimizer = net.posterior["weight"], Adam(param_groups(net), 0.1)
    weight.mu.grad, weight.rho.grad = torch.ones(3, 6), torch.ones(3, 6)
    optimizer.step()
    keep = torch.rand(3, 6) > 0.5
    weight.prune(keep)
    before = weight.mu.detach().clone(), weight.rho.detach().clone()
    optimizer.step()
    for now, then in zip((weight.mu, weight.rho), before, strict=True):
        assert torch.equal(now[~keep], then[~keep])
        assert (now[keep] != then[keep]).all()


def test_bad_options_are_refused():
    groups = param_groups(to_bayesian(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="lr"):
        Adam(groups, 0.0)
    with pytest.raises(ValueError, match="eps"):
        Adam(groups, eps=-1)
