"""MAS against the closed form of a linear net."""

import dataclasses

import pytest
import torch

from tests.methods.data import Given
from tests.methods.shared_net import info, learner, shared_copy, softmax_regression

pytestmark = pytest.mark.usefixtures("double")


def test_the_importance_of_a_linear_net():
    """With f = W x + b: |d ||f||^2 / d W_kj| = 2 |f_k x_j|, averaged over examples; tasks add up."""
    method = learner("mas", softmax_regression())
    total = 0
    for index in range(2):
        method.begin_task(info(index))
        x, y = torch.randn(30, 4), torch.randint(3, (30,))
        for _ in range(3):
            method.learn(x, y)
        f = method.net(x).detach()
        total = total + 2 * f.abs().T @ x.abs() / len(x)
        method.end_task(Given(x, y))
        torch.testing.assert_close(method.importance["heads.0.weight"], total)
    # the absolute value of the mean, which is cheaper, is another number
    of_the_mean = (2 * f.T @ x / len(x)).abs().sum()
    assert of_the_mean < 0.8 * (2 * f.abs().T @ x.abs() / len(x)).sum()


def test_the_step_is_the_implicit_one():
    method = learner("mas", strength=3.0, lr=0.2)
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    for index in range(2):
        method.begin_task(info(index, index))
        method.learn(x, y)
        method.end_task(Given(x, y))
    omega, old = {name: value.clone() for name, value in method.importance.items()}, shared_copy(method)
    method.begin_task(info(2, 0))
    for _ in range(3):
        before = shared_copy(method)
        method.learn(x, y)
        after = {name: value.requires_grad_() for name, value in shared_copy(method).items()}
        sum(3 * (omega[name] * (value - old[name]) ** 2).sum() for name, value in after.items()).backward()
        for name, p in method.shared().items():
            torch.testing.assert_close((before[name] - p) / 0.2, p.grad + after[name].grad)


@pytest.mark.parametrize("bad", [{"strength": -1.0}, {"importance_examples": -1}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        dataclasses.replace(learner("mas").settings, **bad)
