import copy

import pytest
import torch
from torch import nn

from tests.methods.nets import begin, conv_net, made, small_net, task_data
from ucb.nets import HeadedNet


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("rows", [30, 60])
def test_the_gradient_on_a_linear_trunk_is_the_closed_form(rows):
    """For f(x) = A x it is lambda (A - A_old) times the mean of x x^T, whatever the size of the batch."""
    x, _ = task_data(0, rows=rows)
    x = x.double()
    method = made("lfl", HeadedNet(nn.Linear(8, 5, bias=False), 5, (2, 2)), strength=0.7)
    begin(method, 0)
    begin(method, 1)
    with torch.no_grad():
        method.net.trunk.weight += torch.randn(5, 8)
    features = method.net.trunk(x)
    method.penalty(x, features).backward()
    away = (method.net.trunk.weight - method.old.weight).detach()
    torch.testing.assert_close(method.net.trunk.weight.grad, 0.7 * away @ (x.T @ x) / rows)
    assert all(p.grad is None for p in method.net.heads.parameters())


@pytest.mark.usefixtures("double")
def test_the_penalty_of_convolutional_features_sums_over_all_of_them():
    trunk = nn.Conv2d(1, 3, 3)
    method = made("lfl", HeadedNet(nn.Sequential(trunk, nn.Flatten(), nn.ReLU()), 48, (2, 2)), strength=0.7)
    x = task_data(0, (1, 6, 6), rows=10)[0].double()
    begin(method, 0)
    begin(method, 1)
    old = copy.deepcopy(method.net.trunk)
    with torch.no_grad():
        trunk.weight += torch.randn_like(trunk.weight)
    features = method.net.trunk(x)
    distances = [((features[i] - old(x)[i]) ** 2).sum() for i in range(10)]
    torch.testing.assert_close(method.penalty(x, features), 0.35 * torch.stack(distances).mean())


def test_the_first_task_is_learnt_as_by_fine_tuning_and_old_heads_rest():
    net = conv_net()
    lfl, plain = made("lfl", copy.deepcopy(net), lr=0.1), made("ord-ft", copy.deepcopy(net), lr=0.1)
    data = task_data(0, (1, 6, 6))
    for method in (lfl, plain):
        begin(method, 0)
        method.learn(*data)
    assert lfl.old is None
    assert all(torch.equal(a, b) for a, b in zip(lfl.net.parameters(), plain.net.parameters(), strict=True))
    begin(lfl, 1)
    heads = copy.deepcopy(lfl.net.heads)
    lfl.learn(*data)
    assert all(torch.equal(a, b) for a, b in zip(lfl.net.heads[0].parameters(), heads[0].parameters(), strict=True))
    assert not torch.equal(lfl.net.heads[1].weight, heads[1].weight)


def test_with_one_head_old_outputs_rest_and_new_ones_learn():
    method = made("lfl", small_net((6,)), lr=0.1)
    x, y = task_data(0)
    for task in (0, 1):
        begin(method, task, heads=1)
        head = copy.deepcopy(method.net.heads[0])
        method.learn(x, y + 2 * task)
        moved = method.net.heads[0].weight != head.weight
        assert moved[2 * task :].any(1).all()
        assert not moved[: 2 * task].any()
        assert torch.equal(method.net.heads[0].bias[: 2 * task], head.bias[: 2 * task])


def test_a_large_strength_keeps_the_features():
    """Two runs of the same steps: with a penalty the features stay nearer to the old ones."""
    distances = []
    for strength in (0.0, 1.0):
        torch.manual_seed(0)
        method = made("lfl", small_net(), lr=0.1, strength=strength)
        for task in (0, 1):
            begin(method, task)
            for _ in range(40):
                method.learn(*task_data(task))
        x = task_data(1)[0]
        distances.append((method.net.trunk(x) - method.old(x)).detach().square().sum(1).mean())
    assert distances[1] < distances[0] / 5


def test_a_bad_strength_is_refused():
    with pytest.raises(ValueError, match="strength must be 0 or above"):
        made("lfl", small_net(), strength=-1.0)
