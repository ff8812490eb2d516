"""IMM: both merges against their closed forms, what they leave alone, and training between them."""

import dataclasses

import pytest
import torch

from tests.methods.data import Given
from tests.methods.shared_net import info, learner, shared_copy
from ucb.methods import EvalContext
from ucb.methods.per_example import fisher
from ucb.nets import mlp

pytestmark = pytest.mark.usefixtures("double")


def learn_tasks(method, count=3, heads=3, steps=6):
    """Learn some tasks; return each one's trained weights, its Fisher information and the merged weights."""
    trained, precisions, merged = [], [], []
    for index in range(count):
        method.begin_task(info(index, index % heads))
        x, y = torch.randn(20, 4), torch.randint(3, (20,))
        for _ in range(steps):
            method.learn(x, y)
        trained.append(shared_copy(method))
        precisions.append(fisher(method, Given(x, y), 0))
        method.end_task(Given(x, y))
        merged.append(shared_copy(method))
    return trained, precisions, merged


def three_heads():
    return mlp((4,), [3, 3, 3], [5])


def test_the_mean_of_all_trained_weights():
    trained, _, merged = learn_tasks(learner("imm-mean", three_heads(), lr=0.5))
    for count in (1, 2, 3):
        for name, value in merged[count - 1].items():
            torch.testing.assert_close(value, sum(each[name] for each in trained[:count]) / count)
            assert count == 1 or not torch.allclose(value, trained[count - 1][name])


def test_the_mode_weights_each_task_by_its_precision():
    trained, precisions, merged = learn_tasks(learner("imm-mode", three_heads(), lr=0.5, fisher_examples=0))
    for count in (1, 2, 3):
        for name, value in merged[count - 1].items():
            total = sum(each[name] for each in precisions[:count])
            weighted = sum(f[name] * each[name] for f, each in zip(precisions, trained[:count], strict=False))
            torch.testing.assert_close(value, weighted / total)
            if count > 1:  # neither nothing nor the plain mean
                assert not torch.allclose(value, trained[count - 1][name], rtol=1e-3)
                assert not torch.allclose(value, sum(each[name] for each in trained[:count]) / count, rtol=1e-3)


def test_where_no_task_has_any_precision_the_mode_is_the_mean():
    method = learner("imm-mode", three_heads())
    with torch.no_grad():
        method.net.trunk[1].bias[2] = -1e3  # a dead unit: nothing depends on its weights
    trained = []
    for index in range(3):
        method.begin_task(info(index, index))
        with torch.no_grad():
            method.net.trunk[1].weight[2] = torch.randn(4)
        trained.append(method.net.trunk[1].weight[2].detach().clone())
        method.end_task(Given(torch.randn(20, 4), torch.randint(3, (20,))))
    torch.testing.assert_close(method.net.trunk[1].weight[2], sum(trained) / 3)


@pytest.mark.parametrize("name", ["imm-mean", "imm-mode"])
def test_heads_are_never_merged(name):
    method = learner(name, three_heads(), lr=0.5)
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    for index in range(3):
        method.begin_task(info(index, index))
        for _ in range(5):
            method.learn(x, y)
        before = [p.detach().clone() for p in method.net.heads.parameters()]
        method.end_task(Given(x, y))
        assert all(torch.equal(p, old) for p, old in zip(method.net.heads.parameters(), before, strict=True))


@pytest.mark.parametrize("name", ["imm-mean", "imm-mode"])
def test_a_task_begins_with_the_last_trained_weights_and_answers_come_from_the_merged(name):
    method, x = learner(name, three_heads(), lr=0.5), torch.randn(6, 4)
    trained, _, merged = learn_tasks(method)
    answer = method.logits(x, EvalContext(0, 0), 0, torch.Generator())
    hidden = (x @ merged[-1]["trunk.1.weight"].T + merged[-1]["trunk.1.bias"]).relu()
    torch.testing.assert_close(answer[0], method.net.heads[0](hidden))
    method.begin_task(info(3, 0))
    assert all(torch.equal(p, trained[-1][name]) for name, p in method.shared().items())
    assert not torch.allclose(answer, method.logits(x, EvalContext(0, 0), 0, torch.Generator()))


def test_l2_transfer_is_the_implicit_step_towards_the_last_trained_weights():
    method = learner("imm-mean", three_heads(), lr=0.2, transfer=0.7)
    last = learn_tasks(method, 2)[0][-1]
    method.begin_task(info(2, 2))
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    for _ in range(4):
        before = shared_copy(method)
        method.learn(x, y)
        for name, p in method.shared().items():
            torch.testing.assert_close((before[name] - p) / 0.2, p.grad + 0.7 * (p - last[name]))


@pytest.mark.parametrize(("name", "bad"), [("imm-mean", {"transfer": -1.0}), ("imm-mode", {"fisher_examples": -1})])
def test_bad_settings_are_refused(name, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        dataclasses.replace(learner(name).settings, **bad)
