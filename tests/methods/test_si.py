"""SI: the path integral is the loss's drop, step by step and in sum; importance and penalty as in the paper."""

import dataclasses
import itertools

import pytest
import torch
from torch import nn

from tests.methods.data import Given
from tests.methods.shared_net import info, learner, shared_copy
from ucb.nets import HeadedNet

pytestmark = pytest.mark.usefixtures("double")


def gap(lr, steps):
    """Learn a loss that is quadratic in the trunk's weights; return sum omega - drop of the loss, and the drop."""
    torch.manual_seed(0)
    net = HeadedNet(nn.Linear(4, 3), 3, [3, 3])
    net.heads.requires_grad_(False)
    method, x, target = learner("si", net, lr=lr), torch.randn(20, 4), torch.randn(20, 3)
    method.nll = lambda logits, y: ((logits - target) ** 2).mean()
    method.begin_task(info())
    losses = [method.learn(x, None) for _ in range(steps)]
    drop = losses[0] - method.loss(x, None)
    return float(sum(omega.sum() for omega in method.omega.values()) - drop), float(drop)


def test_the_sum_of_omega_is_the_drop_of_the_loss_as_steps_get_small():
    gaps = [gap(0.1 / 2**k, 20 * 2**k) for k in range(4)]
    assert gaps[-1][1] > 0.05
    for (coarse, _), (fine, _) in itertools.pairwise(gaps):
        assert 0 < fine < coarse
    assert gaps[-2][0] / gaps[-1][0] == pytest.approx(2, rel=0.05)
    assert gaps[-1][0] < 0.01 * gaps[-1][1]


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_omega_takes_the_loss_s_gradient_and_the_whole_step(clip):
    """Neither the penalty nor clipping enters the gradient; both are in the step."""
    method, x, y = learner("si", strength=200.0, clip=clip, lr=0.3), torch.randn(20, 4), torch.randint(3, (20,))
    method.begin_task(info())
    for _ in range(10):
        method.learn(x, y)
    method.end_task(Given(x, y))
    method.begin_task(info(1, 1))
    expected = {name: torch.zeros_like(p) for name, p in method.shared().items()}
    pulled = 0
    for _ in range(4):
        parameters, before = method.shared(), shared_copy(method)
        gradients = torch.autograd.grad(method.nll(method.net(x), y), parameters.values())
        method.learn(x, y)
        for (name, p), gradient in zip(parameters.items(), gradients, strict=True):
            expected[name] -= gradient * (p.detach() - before[name])
            pulled += (p - before[name] + 0.3 * p.grad).abs().max()
    for name, value in expected.items():
        torch.testing.assert_close(method.omega[name], value)
    assert pulled > 1e-4


def test_importance_is_omega_over_drift_summed_over_tasks():
    method, total, drifts = learner("si", damping=0.05, lr=0.5), {}, []
    for index in range(3):
        start = shared_copy(method)
        method.begin_task(info(index, index % 2))
        x, y = torch.randn(20, 4), torch.randint(3, (20,))
        for _ in range(15):
            method.learn(x, y)
        for name, p in shared_copy(method).items():
            drift = (p - start[name]) ** 2
            drifts.append(float(drift.max()))
            total[name] = total.get(name, 0) + method.omega[name].clamp(min=0) / (drift + 0.05)
        end = shared_copy(method)
        method.end_task(Given(x, y))
        for name, value in total.items():
            torch.testing.assert_close(method.importance[name], value)
            assert torch.equal(method.centre[name], end[name])
    assert max(drifts) > 0.01  # or xi alone would do


def test_a_negative_omega_counts_as_none():
    method = learner("si")
    method.begin_task(info())
    for omega in method.omega.values():
        omega.fill_(-1.0)
    method.end_task(None)
    assert all(not value.any() for value in method.importance.values())


def test_the_step_is_the_implicit_one():
    method, x, y = learner("si", strength=20.0, lr=0.2), torch.randn(20, 4), torch.randint(3, (20,))
    method.begin_task(info())
    for _ in range(10):
        method.learn(x, y)
    method.end_task(Given(x, y))
    old = shared_copy(method)
    method.begin_task(info(1, 1))
    for _ in range(3):
        before = shared_copy(method)
        method.learn(x, y)
        after = {name: value.requires_grad_() for name, value in shared_copy(method).items()}
        sum(20 * (method.importance[name] * (v - old[name]) ** 2).sum() for name, v in after.items()).backward()
        for name, p in method.shared().items():
            torch.testing.assert_close((before[name] - p) / 0.2, p.grad + after[name].grad)


@pytest.mark.parametrize("bad", [{"strength": -1.0}, {"damping": 0.0}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        dataclasses.replace(learner("si").settings, **bad)
