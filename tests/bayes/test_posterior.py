import copy

import pytest
import torch
from torch import nn

from ucb.bayes import Gaussian, gaussians, to_bayesian
from ucb.kernels import inverse_softplus


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inverse_softplus_undoes_softplus_over_twelve_decades(dtype):
    sigma = torch.logspace(-8, 4, 49, dtype=dtype)
    back = nn.functional.softplus(inverse_softplus(sigma))
    torch.testing.assert_close(back, sigma, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=0)


def test_samples_have_the_mean_and_spread_they_claim():
    gaussian = Gaussian(torch.tensor([-2.0, 0.0, 3.0]), torch.tensor([0.1, 1.0, 4.0]))
    samples = gaussian.sample((200_000,))
    torch.testing.assert_close(samples.mean(0), gaussian.mean, rtol=0, atol=0.05)
    torch.testing.assert_close(samples.std(0), gaussian.sigma, rtol=0.01, atol=0)


def test_sigma_is_computed_afresh_whatever_changed_rho():
    gaussian = Gaussian(torch.zeros(3), 0.5)
    with torch.no_grad():
        gaussian.rho.fill_(2.0)
    torch.testing.assert_close(gaussian.sigma, nn.functional.softplus(torch.full((3,), 2.0)))
    gaussian.set_sigma(torch.tensor([0.1, 0.2, 0.3]))
    torch.testing.assert_close(gaussian.sigma, torch.tensor([0.1, 0.2, 0.3]))


@pytest.mark.parametrize("change", [lambda n: n.double(), lambda n: n.to("meta"), copy.deepcopy, lambda n: n.half()])
def test_a_cast_or_move_takes_mean_and_spread_along(change):
    before = to_bayesian(nn.Linear(3, 2))
    after = change(copy.deepcopy(before))
    for (name, old), (same, new) in zip(gaussians(before), gaussians(after), strict=True):
        assert name == same
        assert new.mu.dtype == new.rho.dtype == new.sigma.dtype
        assert new.mu.device == new.rho.device == new.sigma.device
        if not new.mu.is_meta:
            torch.testing.assert_close(new.mu.float(), old.mu, rtol=1e-3, atol=0)
            torch.testing.assert_close(new.sigma.float(), old.sigma, rtol=1e-2, atol=0)
            with torch.no_grad():
                new.rho += 1
            assert (new.sigma.float() > old.sigma * 1.5).all()


def test_a_pruned_weight_has_neither_mean_nor_noise_and_no_gradient():
    gaussian = Gaussian(torch.ones(4), 0.5)
    keep = torch.tensor([True, False, True, False])
    gaussian.prune(keep)
    samples = gaussian.sample((100,))
    assert (samples[:, ~keep] == 0).all()
    assert (samples[:, keep].std(0) > 0.1).all()
    samples.sum().backward()
    assert (gaussian.mu.grad[~keep] == 0).all()
    assert (gaussian.rho.grad[~keep] == 0).all()
    gaussian.prune(None)
    assert (gaussian.sample((1,)) != 0).all()


@pytest.mark.parametrize("with_mask", [True, False])
def test_state_decides_whether_there_is_a_mask(with_mask):
    saved, loading = Gaussian(torch.ones(4), 0.5), Gaussian(torch.zeros(4), 0.1)
    mask = torch.tensor([True, False, True, False])
    (saved if with_mask else loading).prune(mask)
    loading.load_state_dict(saved.state_dict())
    assert torch.equal(loading.mu, saved.mu)
    assert torch.equal(loading.rho, saved.rho)
    assert (loading.keep is not None) == with_mask
    if with_mask:
        assert torch.equal(loading.keep, mask)


def test_a_state_that_does_not_speak_of_a_weight_leaves_its_mask():
    net = to_bayesian(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    mask = torch.tensor([[True, False], [False, True]])
    net[0].posterior["weight"].prune(mask)
    net.load_state_dict({k: v for k, v in net.state_dict().items() if k.startswith("1.")}, strict=False)
    assert torch.equal(net[0].posterior["weight"].keep, mask)


def test_names_are_those_of_the_plain_net():
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    assert [n for n, _ in gaussians(to_bayesian(net))] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in gaussians(to_bayesian(nn.Linear(2, 2)))] == ["weight", "bias"]


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_a_spread_that_is_none_is_refused(sigma):
    with pytest.raises(ValueError, match="initial spread"):
        Gaussian(torch.zeros(2), sigma)


def test_bad_means_and_masks_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        Gaussian(torch.tensor([1.0, float("nan")]), 1.0)
    gaussian = Gaussian(torch.zeros(2), 1.0)
    with pytest.raises(ValueError, match="shape"):
        gaussian.prune(torch.ones(3, dtype=torch.bool))
    for mask in (torch.ones(2), [True, False]):
        with pytest.raises(TypeError, match="boolean"):
            gaussian.prune(mask)
    with pytest.raises(ValueError, match="above 0"):
        gaussian.set_sigma(torch.tensor([1.0, -1.0]))
