import copy

import pytest
import torch
import torch.nn.functional as F

from tests.methods.nets import begin, conv_net, made, small_net, task_data
from ucb.methods import TaskInfo
from ucb.methods.lwf import distillation


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_the_gradient_of_distillation_is_the_difference_of_softened_probabilities(temperature):
    now, then = torch.randn(7, 3, 4, requires_grad=True), torch.randn(7, 3, 4)
    distillation(now, then, temperature).backward()
    difference = (now / temperature).softmax(-1) - (then / temperature).softmax(-1)
    torch.testing.assert_close(now.grad, difference / (temperature * 7))


@pytest.mark.usefixtures("double")
def test_distillation_is_the_mean_over_rows_and_the_sum_over_heads_of_a_cross_entropy():
    now, then = torch.randn(7, 3, 4), torch.randn(7, 3, 4)
    expected = sum(F.cross_entropy(now[:, i] / 2, (then[:, i] / 2).softmax(1)) for i in range(3))
    torch.testing.assert_close(distillation(now, then, 2.0), expected)


@pytest.mark.usefixtures("double")
def test_where_the_outputs_are_still_the_old_ones_there_is_no_gradient():
    logits = torch.randn(7, 1, 4, requires_grad=True)
    distillation(logits, logits.detach().clone(), 2.0).backward()
    assert logits.grad.abs().max() < 1e-16


@pytest.mark.parametrize("heads", [3, 1])
def test_the_first_task_is_learnt_as_by_fine_tuning(heads):
    net = small_net((2,) * 3 if heads == 3 else (6,))
    lwf, plain = made("lwf", copy.deepcopy(net), lr=0.1), made("ord-ft", copy.deepcopy(net), lr=0.1)
    for method in (lwf, plain):
        begin(method, 0, heads)
        for _ in range(3):
            method.learn(*task_data(0))
    assert lwf.old is None
    pairs = zip(lwf.net.parameters(), plain.net.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 3, 2)])
def test_a_step_in_the_third_task_follows_the_gradient_of_the_written_out_loss(sizes):
    method = made("lwf", small_net(sizes), lr=0.1, strength=3.0, temperature=2.0)
    x, y = task_data(0)
    x = x.double()
    for task in (0, 1):
        method.begin_task(TaskInfo(task, 100, task, range(sizes[task])))
        method.learn(x, y)
    method.begin_task(TaskInfo(2, 100, 2, range(2)))
    before = copy.deepcopy(method.net)
    for _ in range(2):  # in the second step the net has left the old one
        present = copy.deepcopy(method.net)
        method.learn(x, y)
    loss = F.cross_entropy(present.heads[2](present.trunk(x)), y)
    for head in (0, 1):
        now, then = (net.heads[head](net.trunk(x)) / 2 for net in (present, before))
        loss = loss - 3 * (then.detach().softmax(1) * now.log_softmax(1)).sum(1).mean()
    loss.backward()
    for (name, reference), learnt in zip(present.named_parameters(), method.net.parameters(), strict=True):
        torch.testing.assert_close(learnt, reference - 0.1 * reference.grad, msg=lambda text, n=name: f"{n}: {text}")
        assert name.startswith("trunk") or reference.grad.abs().sum() > 0  # old heads learn along


@pytest.mark.usefixtures("double")
def test_with_one_head_the_outputs_of_earlier_tasks_are_compared_among_themselves():
    method = made("lwf", small_net((6,)), lr=0.1, strength=3.0)
    x, y = task_data(0)
    x = x.double()
    for task in (0, 1):
        begin(method, task, heads=1)
        method.learn(x, y + 2 * task)
    begin(method, 2, heads=1)
    before = copy.deepcopy(method.net)
    method.learn(x, y + 4)
    present = copy.deepcopy(method.net)
    method.learn(x, y + 4)
    now, then = present(x), before(x).detach()
    loss = F.cross_entropy(now, y + 4) + 3 * F.cross_entropy(now[:, :4] / 2, (then[:, :4] / 2).softmax(1))
    loss.backward()
    for reference, learnt in zip(present.parameters(), method.net.parameters(), strict=True):
        torch.testing.assert_close(learnt, reference - 0.1 * reference.grad)


def test_the_old_net_rests_while_the_task_lasts_and_is_in_the_state():
    method = made("lwf", conv_net(), lr=0.1)
    data = task_data(0, (1, 6, 6))
    begin(method, 0)
    method.learn(*data)
    begin(method, 1)
    old = {name: value.clone() for name, value in method.old.state_dict().items()}
    method.learn(*data)
    other = made("lwf", conv_net(), seed=5)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    for m in (method, other):
        m.learn(*data)
        assert all(torch.equal(value, old[name]) for name, value in m.old.state_dict().items())
    assert not torch.equal(method.net.trunk[0].weight, old["trunk.0.weight"])
    assert all(torch.equal(a, b) for a, b in zip(method.net.parameters(), other.net.parameters(), strict=True))


@pytest.mark.parametrize(("name", "value"), [("strength", -1.0), ("temperature", 0.0)])
def test_bad_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        made("lwf", small_net(), **{name: value})
