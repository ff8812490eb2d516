"""EWC against the Fisher information of softmax regression, and its penalty against a sum over tasks."""

import dataclasses

import pytest
import torch

from tests.methods.data import Given
from tests.methods.shared_net import info, learner, shared_copy, softmax_regression
from ucb.methods import TaskInfo
from ucb.methods.per_example import fisher

pytestmark = pytest.mark.usefixtures("double")


def closed_form(x, p):
    """E_c (1[c=k] - p_k)^2 x_j^2 = p_k (1 - p_k) x_j^2, example by example."""
    spread = p * (1 - p)
    return {"heads.0.weight": spread.T @ x**2 / len(x), "heads.0.bias": spread.mean(0)}


def test_the_fisher_information_of_softmax_regression():
    method, x, y = learner("ewc", softmax_regression()), torch.randn(30, 4), torch.randint(3, (30,))
    method.begin_task(info())
    method.net.train()
    found = fisher(method, Given(x, y), 0)
    p = method.net(x).detach().softmax(1)
    for name, value in closed_form(x, p).items():
        torch.testing.assert_close(found[name], value)
    # the defect of public versions: the square of a batch's mean gradient is another number
    torch.nn.functional.cross_entropy(method.net(x), y).backward()
    ratio = method.net.heads[0].weight.grad.square().sum() / found["heads.0.weight"].sum()
    assert ratio < 0.5


def test_own_classes_alone_take_part_if_the_loss_sees_them_alone():
    method = learner("ewc", softmax_regression(5), own_classes=True)
    method.begin_task(TaskInfo(1, 30, 0, range(2, 5)))
    x = torch.randn(30, 4)
    found = fisher(method, Given(x, torch.full((30,), 2)), 0)
    p = method.net(x).detach()[:, 2:].softmax(1)
    for name, value in closed_form(x, p).items():
        torch.testing.assert_close(found[name][2:], value)
        assert found[name][:2].max() < 1e-15


def test_a_part_of_the_examples_gives_nearly_the_same():
    method, x = learner("ewc"), torch.randn(4000, 4)
    method.begin_task(info())
    data = Given(x, torch.zeros(4000, dtype=torch.long))
    everything, part = fisher(method, data, 0), fisher(method, data, 1000)
    for name, value in everything.items():
        torch.testing.assert_close(part[name], value, rtol=0.25, atol=0.02 * float(value.max()))
        assert not torch.equal(part[name], value)


@pytest.mark.parametrize("one_head", [False, True])
def test_the_step_is_the_implicit_one_on_the_sum_over_tasks(one_head):
    """(theta_before - theta_after) / lr = gradient of the NLL before + gradient of all tasks' penalties after."""
    net = softmax_regression() if one_head else None
    method = learner("ewc", net, strength=700.0, lr=0.2, fisher_examples=0)
    tasks = []
    for index in range(3):
        head = 0 if one_head else index % 2
        method.begin_task(info(index, head))
        x, y = torch.randn(20, 4), torch.randint(3, (20,))
        for _ in range(4):
            before = shared_copy(method)
            method.learn(x, y)
            after = {name: value.requires_grad_() for name, value in shared_copy(method).items()}
            penalty = sum(
                700 / 2 * (f[name] * (after[name] - old[name]) ** 2).sum() for f, old in tasks for name in after
            )
            if tasks:
                penalty.backward()
            for name, p in method.shared().items():
                pulled = after[name].grad if tasks else 0
                torch.testing.assert_close((before[name] - p) / 0.2, p.grad + pulled)
        data = Given(x, y)
        tasks.append((fisher(method, data, 0), shared_copy(method)))
        method.end_task(data)
    assert method.shared().keys() == method.importance.keys()
    assert sum(value.numel() for value in method.importance.values()) == sum(p.numel() for p in before.values())


def test_a_slow_rate_makes_it_the_gradient_step():
    """What is left between the two is of second order in the rate: half the rate, a quarter of the gap."""
    gaps = []
    for lr in (1e-4, 5e-5):
        torch.manual_seed(0)
        method, x, y = learner("ewc", strength=50.0, lr=0.1), torch.randn(20, 4), torch.randint(3, (20,))
        method.begin_task(info())
        method.learn(x, y)
        method.end_task(Given(x, y))
        method.begin_task(info(1, 1))
        method.set_rate(0.1)
        method.learn(x, y)
        method.set_rate(lr)
        before = shared_copy(method)
        method.learn(x, y)
        gap = 0
        for name, p in method.shared().items():
            pull = 50 * method.importance[name] * (before[name] - method.centre[name])
            gap += (before[name] - lr * (p.grad + pull) - p.detach()).abs().sum()
        gaps.append(float(gap))
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.01)


def test_no_strength_makes_it_diverge_or_stops_a_head():
    method, x, y = learner("ewc", strength=1e12, lr=0.3), torch.randn(20, 4), torch.randint(3, (20,))
    for index in range(2):
        method.begin_task(info(index, index))
        start, head = shared_copy(method), method.net.heads[index].weight.detach().clone()
        for _ in range(20):
            assert method.learn(x, y).isfinite()
        assert (method.net.heads[index].weight - head).abs().max() > 0.01
        method.end_task(Given(x, y))
    for name, p in method.shared().items():
        used = method.importance[name] > 1e-6
        torch.testing.assert_close(p.detach()[used], start[name][used], rtol=0, atol=1e-5)


def test_without_strength_it_is_fine_tuning():
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    found = []
    for name, settings in (("ewc", {"strength": 0.0}), ("ord-ft", {})):
        torch.manual_seed(1)
        method = learner(name, **settings)
        for index in range(2):
            method.begin_task(info(index, index))
            for _ in range(5):
                method.learn(x, y)
            method.end_task(Given(x, y))
        found.append(torch.cat([p.detach().flatten() for p in method.net.parameters()]))
    assert torch.equal(*found)


@pytest.mark.parametrize("bad", [{"strength": -1.0}, {"fisher_examples": -1}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        dataclasses.replace(learner("ewc").settings, **bad)
