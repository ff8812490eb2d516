"""Nets that skip layers at random: each sample, or all that travel together, with weights for what was skipped."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ucb.bayes import ELBO, ScaleMixture, forward, to_bayesian
from ucb.bayes.passes import Pass, run


class Skipping(nn.Module):
    """Stochastic depth: in training each block is left out half of the time."""

    def __init__(self, stem):
        super().__init__()
        self.stem = nn.Linear(4, 4) if stem else nn.Identity()
        self.blocks, self.head = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), nn.Linear(4, 3)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.5:
                h = h + torch.tanh(block(h))
        return self.head(h)


@pytest.mark.parametrize("stem", [True, False])
@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("prior_samples", [1, 3, 5])
def test_layers_that_are_skipped_at_random_are_no_trouble(stem, stack, prior_samples):
    net, x, y = to_bayesian(Skipping(stem)), torch.randn(6, 4), torch.randint(3, (6,))
    prior = ScaleMixture(0.25, 1.0, 0.1)
    for estimator in ("weights", "local", "flipout"):
        elbo = ELBO(10, prior, samples=3, prior_samples=prior_samples, stack=stack, estimator=estimator)
        for _ in range(15):
            terms = elbo(net, x, y)
            terms.loss.backward()
            assert terms.loss.isfinite()
            assert elbo.backward(net, x, y).loss.isfinite()
        assert all(p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("stem", [True, False])
def test_with_the_same_choices_the_result_is_that_of_each_sample_alone(double, stem):
    net, x, y = to_bayesian(Skipping(stem)), torch.randn(6, 4), torch.randint(3, (6,))
    for _ in range(30):  # so that every way to travel has been met
        forward(net, x, 3, stack=True)
    for seed in range(8):
        p = Pass("weights", 6, 3, torch.Generator().manual_seed(seed))
        elbo = ELBO(10, samples=3, temperature=0)
        torch.manual_seed(seed)
        found = elbo.nll_on(net, x, y, p)
        parameters = list(net.parameters())
        gradients = torch.autograd.grad(found, parameters, retain_graph=True, allow_unused=True)
        alone = []
        for s in range(3):
            torch.manual_seed(seed)  # all that travel together have one choice
            q = Pass("weights", 6, drawn={g: w[s] for g, w in p.drawn.items()})
            alone.append(F.cross_entropy(run(net, x, q)[0], y))
        torch.testing.assert_close(found, torch.stack(alone).mean())
        expected = torch.autograd.grad(torch.stack(alone).mean(), parameters, allow_unused=True)
        torch.testing.assert_close(gradients, expected)
