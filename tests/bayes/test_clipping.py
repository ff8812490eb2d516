"""Clipped gradients against PyTorch's: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch
from torch import nn

from tests.bayes.triton_tests import DEVICE, MARKS
from ucb.bayes import ELBO, ScaleMixture, to_bayesian
from ucb.kernels.triton import launch, steps

pytestmark = MARKS


def with_gradients(scale):
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.zeros(shape, device=DEVICE)) for shape in [(3, 4), (5,), (2, 2, 2)]]
    for p in parameters:
        p.grad = scale * torch.randn_like(p)
    return [*parameters, nn.Parameter(torch.zeros(7, device=DEVICE))]  # one has none


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e6])
def test_gradients_are_shortened_as_pytorch_does_it(scale, is_fused, monkeypatch):
    monkeypatch.setattr(steps, "supports", lambda *_: is_fused)
    ours, theirs = with_gradients(scale), with_gradients(scale)
    steps.clip_gradients(iter(ours), 0.5)
    nn.utils.clip_grad_norm_(theirs, 0.5)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


def test_without_any_gradient_nothing_happens():
    parameter = nn.Parameter(torch.ones(2, device=DEVICE))
    steps.clip_gradients([parameter], 1.0)
    assert parameter.grad is None
    assert parameter.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("temperature", [0.7, 0.0])
def test_sums_that_the_gradients_kernel_has_found_give_the_same_factor(temperature, monkeypatch):
    monkeypatch.setattr(launch, "available", lambda device: True)
    torch.manual_seed(0)
    net = to_bayesian(nn.Sequential(nn.Linear(6, 70), nn.ReLU(), nn.Linear(70, 3)).to(DEVICE), 0.5)
    x, y, measured = torch.randn(5, 6, device=DEVICE), torch.randint(3, (5,), device=DEVICE), {}
    prior, generator = ScaleMixture(0.25, 1.0, 0.1), torch.Generator(DEVICE).manual_seed(1)
    elbo = ELBO(50, prior, temperature=temperature, samples=4, estimator="local", generator=generator)
    elbo.add_gradients(net, x, y, measured)
    assert len(measured) == (8 if temperature else 4), "without a KL the head's gradient is autograd's"
    for p, sums in measured.items():
        torch.testing.assert_close(sums.sum(), p.grad.square().sum())
    parameters = list(net.parameters())
    known, anew = (steps.clip_factor(parameters, 0.01, sums) for sums in (measured, None))
    assert 0 < float(known) < 1
    torch.testing.assert_close(known, anew)
