"""Batch normalisation that stays deterministic: every sample has statistics of its own, and it is named."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from ucb.bayes import ELBO, DeterministicWarning, find_deterministic, forward, to_bayesian
from ucb.bayes.passes import Pass, run
from ucb.bayes.sampling import choose_sample_batching, walk


class Own(nn.BatchNorm1d):
    """A subclass, which may compute anything."""


def with_norm(norm):
    return nn.Sequential(nn.Linear(4, 4), norm, nn.Tanh(), nn.Linear(4, 3))


def tied():
    """A batch normalisation whose weight a module without a Bayesian form shares."""
    net = with_norm(nn.BatchNorm1d(4))
    net.append(nn.PReLU(4))
    net[4].weight = net[1].weight
    net[3] = nn.Linear(4, 4)
    return net


class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm3d(2), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x).reshape(-1, 2, 2, 2, 1)).flatten(1))


BUILDS = {
    "subclass": lambda: with_norm(Own(4)),
    "without parameters": lambda: with_norm(Own(4, affine=False)),
    "without running statistics": lambda: with_norm(Own(4, track_running_stats=False)),
    "volumes": Volumes,
    "tied": tied,
    "first": lambda: nn.Sequential(Own(4), nn.Linear(4, 3)),
}


def build(name):
    with pytest.warns(DeterministicWarning) as told:
        net = to_bayesian(BUILDS[name](), init_std_ratio=0.5)
    return net, str(told[0].message)


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("training", [True, False])
def test_every_sample_has_statistics_of_its_own(double, name, training):
    net, message = build(name)
    assert {"volumes": "norm (no Bayesian form is registered for BatchNorm3d)", "tied": "1 (shares a weight"}.get(
        name, "(no Bayesian form is registered for Own)"
    ) in message
    net.train(training)
    x, p, other = torch.randn(6, 4), Pass("weights", 6, 3), copy.deepcopy(net)
    assert choose_sample_batching(net, x, p) != "alone"
    together = walk(net, x, p)
    theirs = dict(zip(net.modules(), other.modules(), strict=True))
    alone = [run(other, x, Pass("weights", 6, drawn={theirs[g]: w[s] for g, w in p.drawn.items()})) for s in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))
    for mine, reference in zip(net.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, reference)


@pytest.mark.parametrize("name", BUILDS)
def test_it_learns_under_every_estimator_and_can_be_copied(name):
    net, _ = build(name)
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    for estimator in ("weights", "local", "flipout"):
        ELBO(9, samples=3, estimator=estimator, stack=True).backward(net, x, y)
    for copied in (copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))):
        other = copied(net)
        found = [forward(n, x, 3, stack=True, generator=torch.Generator().manual_seed(0)) for n in (net, other)]
        torch.testing.assert_close(*found)
        assert torch.equal(other.eval()(x), net.eval()(x))
        net.train()
        before = [b.clone() for b in net.buffers()]
        forward(other.train(), x, 3, stack=True)
        assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True)), "a copy stands alone"


def test_one_that_is_put_in_later_makes_samples_go_one_by_one():
    net = to_bayesian(with_norm(nn.Identity()))
    net[1] = nn.BatchNorm1d(4)
    assert choose_sample_batching(net, torch.randn(6, 4), Pass("weights", 6, 3)) == "alone"
    assert choose_sample_batching(net.eval(), torch.randn(6, 4), Pass("weights", 6, 3)) == "shared"


def test_instances_that_keep_no_statistics_are_not_named():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = to_bayesian(nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2)))
    assert find_deterministic(net) == []
    with pytest.warns(DeterministicWarning, match="InstanceNorm2d"):
        to_bayesian(nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, track_running_stats=True)))
