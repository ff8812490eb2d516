"""Clipped gradients against PyTorch's: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch
from torch import nn

from tests.bayes.triton_tests import DEVICE, MARKS
from ucb.bayes.kernels import clipping

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
    monkeypatch.setattr(clipping, "serves", lambda *_: is_fused)
    ours, theirs = with_gradients(scale), with_gradients(scale)
    clipping.clip_gradients(iter(ours), 0.5)
    nn.utils.clip_grad_norm_(theirs, 0.5)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


def test_without_any_gradient_nothing_happens():
    parameter = nn.Parameter(torch.ones(2, device=DEVICE))
    clipping.clip_gradients([parameter], 1.0)
    assert parameter.grad is None
    assert parameter.tolist() == [1.0, 1.0]
