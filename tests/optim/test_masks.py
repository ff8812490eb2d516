import pytest
import torch
from torch import nn

from ucb.bayes import ELBO, ScaleMixture, forward, gaussians, to_bayesian
from ucb.optim import (
    GNG,
    UCB,
    UCBNG,
    Adam,
    Freeze,
    RateScale,
    UniformLR,
    Vadam,
    importance,
    least_important,
    param_groups,
)

OPTIMISERS = {
    "ucb": lambda net: UCB(param_groups(net), 0.1, momentum=0.9),
    "ucb with huge rates": lambda net: UCB(param_groups(net), 1e30, scale=RateScale(cap=None)),
    "ucb-ng": lambda net: UCBNG(param_groups(net), 50, lr=0.1, pull=True),
    "adam by groups": lambda net: Adam(param_groups(net), 0.1),
    "vadam": lambda net: Vadam(param_groups(net), 50, 0.1),
    "gng": lambda net: GNG(param_groups(net), 0.1),
    "uniform": lambda net: UniformLR(param_groups(net), 0.1),
    "sgd": lambda net: torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda net: torch.optim.AdamW(net.parameters(), 0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("poison", [False, True])
def test_a_frozen_weight_does_not_change_by_one_bit(name, poison):
    net = to_bayesian(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)))
    optimizer = OPTIMISERS[name](net)
    x, y, elbo = torch.randn(10, 6), torch.randint(3, (10,)), ELBO(50, ScaleMixture(), samples=2)

    def steps(number):
        for i in range(number):
            optimizer.zero_grad()
            elbo.backward(net, x, y)
            if isinstance(optimizer, UCBNG):
                optimizer.observe(elbo, net, x)
            if poison and i == number - 1:
                for _, g in gaussians(net):
                    g.mu.grad[masks[g]] = float("inf")
            optimizer.step()

    masks = {g: torch.rand_like(g.mu) > 0.5 for _, g in gaussians(net)}
    if "huge" not in name:
        steps(3) if not poison else None  # so that momentum has something to remember
    if hasattr(optimizer, "consolidate"):
        optimizer.consolidate()
    before = {g: (g.mu.detach().clone(), g.rho.detach().clone()) for g in masks}
    frozen = Freeze(optimizer, masks)
    steps(1 if "huge" in name else 4)
    if hasattr(optimizer, "consolidate"):
        optimizer.consolidate()
    for g, mask in masks.items():
        for now, then in zip((g.mu, g.rho), before[g], strict=True):
            assert torch.equal(now[mask], then[mask])
    moved = torch.cat([(g.mu != before[g][0])[~mask] for g, mask in masks.items()])
    assert moved.float().mean() > 0.9
    frozen.remove()
    if "huge" not in name and not poison:
        steps(1)
        assert any((g.mu != before[g][0])[mask].any() for g, mask in masks.items())


def test_ordinary_parameters_can_be_frozen_too():
    layer = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    mask = torch.rand(3, 4) > 0.5
    before = layer.weight.detach().clone()
    Freeze(optimizer, {layer.weight: mask})
    layer(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    assert torch.equal(layer.weight[mask], before[mask])
    assert not torch.equal(layer.weight[~mask], before[~mask])


@pytest.mark.parametrize("name", ["ucb", "ucb-ng", "uniform"])
def test_a_pruned_weight_does_not_change_by_one_bit(name):
    """Not even where momentum or curvature remember it from before it was pruned."""
    net = to_bayesian(nn.Linear(6, 3))
    optimizer, weight = OPTIMISERS[name](net), net.posterior["weight"]
    x, y, elbo = torch.randn(10, 6), torch.randint(3, (10,)), ELBO(50, ScaleMixture(), samples=2)

    def steps(number):
        for _ in range(number):
            optimizer.zero_grad()
            elbo.backward(net, x, y)
            if isinstance(optimizer, UCBNG):
                optimizer.observe(elbo, net, x)
            optimizer.step()

    steps(3)
    keep = torch.rand(3, 6) > 0.5
    weight.prune(keep)
    before = weight.mu.detach().clone(), weight.rho.detach().clone()
    steps(3)
    optimizer.consolidate()
    steps(1)
    for now, then in zip((weight.mu, weight.rho), before, strict=True):
        assert torch.equal(now[~keep], then[~keep])
        assert (now[keep] != then[keep]).any()


def test_a_pruned_weight_carries_no_noise_and_does_not_train():
    net = to_bayesian(nn.Linear(4, 3), init_std_ratio=1.0)
    weight = net.posterior["weight"]
    keep = torch.rand(3, 4) > 0.5
    weight.prune(keep)
    optimizer = UCB(param_groups(net), 0.1)
    before = weight.mu.detach().clone(), weight.rho.detach().clone()
    for estimator in ("weights", "local", "flipout"):
        optimizer.zero_grad()
        ELBO(20, estimator=estimator, samples=2).backward(net, torch.randn(8, 4), torch.randint(3, (8,)))
        optimizer.step()
        assert torch.equal(weight.mu[~keep], before[0][~keep])
        assert torch.equal(weight.rho[~keep], before[1][~keep])
        # Inputs that only meet pruned weights give the bias and its noise alone.
        unit = int((~keep).sum(1).argmax())
        x = (~keep[unit]).float().unsqueeze(0)
        out = forward(net, x, 4000, estimator, stack=True)[:, 0, unit].detach()
        torch.testing.assert_close(out.std(), net.posterior["bias"].sigma[unit].detach(), rtol=0.1, atol=0)


def test_least_important_weights_are_chosen_among_the_free():
    omega = torch.tensor([[5.0, 1.0, 4.0], [2.0, 0.5, 3.0]])
    assert least_important(omega, 0.5).tolist() == [[False, True, False], [True, True, False]]
    free = torch.tensor([[True, False, True], [True, False, True]])
    assert least_important(omega, 0.5, free).tolist() == [[False, False, False], [True, False, True]]
    assert not least_important(omega, 0.0).any()
    assert torch.equal(least_important(omega, 1.0, free), free)
    assert int(least_important(torch.zeros(10), 0.3).sum()) == 3  # ties do not prune more
    for odd in (torch.inf, torch.nan):
        assert least_important(torch.tensor([5.0, odd]), 1.0, torch.tensor([False, True])).tolist() == [False, True]


def test_importance_is_certainty_or_signal_to_noise(double):
    mu, sigma = torch.tensor([-2.0, 0.0]), torch.tensor([0.5, 4.0])
    torch.testing.assert_close(importance("certainty", mu, sigma), torch.tensor([2.0, 0.25]))
    torch.testing.assert_close(importance("snr", mu, sigma), torch.tensor([4.0, 0.0]))


def test_masks_that_do_not_fit_are_refused():
    net = to_bayesian(nn.Linear(4, 3))
    optimizer, weight = UCB(param_groups(net), 0.1), net.posterior["weight"]
    with pytest.raises(ValueError, match=r"\(4, 3\) does not fit weights of \(3, 4\)"):
        Freeze(optimizer, {weight: torch.ones(4, 3, dtype=torch.bool)})
    with pytest.raises(TypeError, match="boolean"):
        Freeze(optimizer, {weight: torch.ones(3, 4)})
    with pytest.raises(ValueError, match="not optimised"):
        Freeze(optimizer, {nn.Parameter(torch.zeros(2)): torch.ones(2, dtype=torch.bool)})
    with pytest.raises(ValueError, match="between 0 and 1"):
        least_important(torch.zeros(3), 1.5)
    with pytest.raises(ValueError, match="does not fit"):
        least_important(torch.zeros(3), 0.5, torch.ones(2, dtype=torch.bool))
