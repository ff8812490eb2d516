"""The fused NLL of classes against PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

from tests.bayes.triton_tests import DEVICE, MARKS
from ucb.kernels.triton import steps

pytestmark = MARKS


def normal(*shape):
    return torch.randn(shape, device=DEVICE)


def close(actual, expected):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("rows", "count"), [(1, 2), (64, 10), (37, 100), (5, 1000)])
def test_the_nll_of_classes_and_its_gradient_are_those_of_pytorch(rows, count, monkeypatch):
    monkeypatch.setattr(steps, "supports", lambda *_: True)
    logits = (5 * normal(rows, count)).requires_grad_()
    target = torch.randint(count, (rows,), device=DEVICE)
    found = steps.cross_entropy(logits, target)
    (grad,) = torch.autograd.grad(3 * found, logits)
    exact = logits.detach().double().requires_grad_()
    expected = F.cross_entropy(exact, target)
    close(found, expected)
    close(grad, torch.autograd.grad(3 * expected, exact)[0])
    assert type(found.grad_fn).__name__ == "_CrossEntropyBackward"


def test_the_nll_of_extreme_logits_is_finite(monkeypatch):
    monkeypatch.setattr(steps, "supports", lambda *_: True)
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], device=DEVICE)
    target = torch.tensor([1, 2], device=DEVICE)
    close(steps.cross_entropy(logits, target), F.cross_entropy(logits.double(), target))


def test_rows_that_do_not_fit_a_program_are_left_to_pytorch(monkeypatch):
    monkeypatch.setattr(steps, "supports", lambda *_: True)
    logits = normal(2, steps.MOST_CLASSES + 1).requires_grad_()
    found = steps.cross_entropy(logits, torch.zeros(2, dtype=torch.long, device=DEVICE))
    assert type(found.grad_fn).__name__ != "_CrossEntropyBackward"
