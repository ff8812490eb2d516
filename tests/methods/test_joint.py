"""Joint training."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.engine.runs import small_run, weights
from ucb.data.streams import Scenario
from ucb.methods import TaskInfo
from ucb.testing import tiny_stream


@pytest.mark.parametrize("name", ["ord-jt", "bbb-jt"])
@pytest.mark.parametrize("scenario", [Scenario(), Scenario("one"), Scenario("one", task_known=False)])
def test_nothing_is_forgotten_where_all_is_learnt_together(name, scenario):
    run = small_run(name, stream=tiny_stream(scenario=scenario), epochs=8, lr=0.3)
    run.learn()
    if scenario.task_known:
        assert run.matrix.acc > 85
        assert run.matrix.bwt > -5


@pytest.mark.parametrize("name", ["ord-jt", "bbb-jt"])
def test_every_task_starts_from_scratch(name):
    run = small_run(name)
    first = weights(run)
    run.learn_task()
    assert any(not torch.equal(first[key], value) for key, value in weights(run).items())
    run.method.begin_task(TaskInfo(1, 100, 1, range(2)))
    assert all(torch.equal(first[key], value) for key, value in weights(run).items())


def test_an_examples_loss_sees_its_own_head_alone():
    method = small_run("ord-jt").method
    method.begin_task(TaskInfo(2, 100, 2, range(2)))
    x, y = torch.randn(60, 8), torch.randint(6, (60,))
    logits = method.net(x)
    assert logits.shape == (60, 6)
    own = [F.cross_entropy(logits[i : i + 1, y[i] // 2 * 2 :][:, :2], y[i : i + 1] % 2) for i in range(60)]
    torch.testing.assert_close(method.nll(logits, y), torch.stack(own).mean())


@pytest.mark.parametrize("name", ["ord-jt", "bbb-jt"])
def test_heads_of_all_tasks_so_far_learn_and_later_ones_rest(name):
    run = small_run(name)
    before = weights(run)
    run.learn_task()
    run.learn_task()
    moved = {key.split(".")[1] for key, value in weights(run).items() if not torch.equal(before[key], value)}
    assert {"0", "1"} <= moved
    assert not any(key.startswith("heads.2") and not torch.equal(before[key], v) for key, v in weights(run).items())


@pytest.mark.parametrize("name", ["ord-jt", "bbb-jt"])
def test_once_on_all_tasks_equals_the_last_of_many_but_for_noise(name):
    once, many = (small_run(name, epochs=8, lr=0.3, final_only=only) for only in (True, False))
    once.learn()
    many.learn()
    assert math.isnan(once.matrix.bwt)
    assert all(math.isnan(value) for row in once.matrix.after[:-1] for value in row)
    assert abs(once.matrix.acc - many.matrix.acc) < 5
    assert once.progress.steps < many.progress.steps
    if name == "ord-jt":  # no noise, and the same order of data: the same weights
        assert all(torch.equal(weights(once)[key], value) for key, value in weights(many).items())
