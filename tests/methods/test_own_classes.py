"""With one head whose outputs are apart, the loss over own classes teaches the task's own outputs only."""

import pytest
import torch

from tests.engine.runs import small_run
from ucb.data.streams import Scenario
from ucb.methods import TaskInfo
from ucb.testing import tiny_stream

OWN, ALL = range(2, 4), 6
WITHOUT_KL = {name: {"temperature": 0.0} for name in ("bbb-ft", "ucb", "uniform-lr")}
"""The prior pulls at every weight; under natural gradients it does so in the update, not in the gradient."""


def head_gradients(name, own_classes):
    """For each tensor of the head, how long each output's gradient is after a batch of the second task."""
    stream = tiny_stream(scenario=Scenario("one", task_known=False))
    method = small_run(name, stream=stream, own_classes=own_classes, **WITHOUT_KL.get(name, {})).method
    method.begin_task(TaskInfo(1, 300, 0, OWN))
    x, y = torch.randn(64, 8), torch.randint(2, (64,)) + OWN.start
    method.optimizer.zero_grad()
    method.add_gradients(x, y)
    found = [p.grad.reshape(ALL, -1).norm(dim=1) for p in method.net.heads[0].parameters() if p.grad is not None]
    assert found
    return found


@pytest.mark.parametrize("name", ["ord-ft", "ewc", "bbb-ft", "ucb", "uniform-lr", "ucb-ng"])
def test_only_own_outputs_get_a_gradient(name):
    own = torch.tensor([output in OWN for output in range(ALL)])
    for lengths in head_gradients(name, own_classes=True):
        assert (lengths[own] > 0).all()
        assert (lengths[~own] == 0).all()
    for lengths in head_gradients(name, own_classes=False):
        assert (lengths > 0).all()


@pytest.mark.parametrize("name", ["ord-ft", "ucb"])
def test_the_loss_is_that_of_a_head_with_the_own_outputs_alone(name):
    method = small_run(name, stream=tiny_stream(scenario=Scenario("one")), own_classes=True).method
    method.begin_task(TaskInfo(1, 300, 0, OWN))
    logits, y = torch.randn(50, ALL), torch.randint(2, (50,))
    alone = logits[:, 2:4].log_softmax(1)[torch.arange(50), y]
    torch.testing.assert_close(method.nll(logits, y + 2), -alone.mean())
