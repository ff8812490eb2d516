import copy
import math

import pytest
import torch
import torch.nn.functional as F

from tests.methods.data import Given
from tests.methods.nets import begin, conv_net, made, small_net, task_data
from ucb.methods import EvalContext


def learn_task(method, index, heads, shape=(8,), steps=12):
    x, y = task_data(index, shape)
    y = y + (2 * index if heads == 1 else 0)
    begin(method, index, heads)
    for phase in (0, 1):
        if phase == 1:
            method.begin_phase(1, Given(x, y))
        for _ in range(steps):
            method.learn(x, y)
    method.end_task(Given(x, y))


def answer(method, index, heads, shape=(8,)):
    return method.logits(
        task_data(index, shape)[0], EvalContext(index if heads > 1 else 0, index), 3, torch.Generator()
    )


NETS = {
    "several heads": (small_net, 3, (8,)),
    "one head": (lambda: small_net((6,)), 1, (8,)),
    "convolutional": (conv_net, 3, (1, 6, 6)),
    "convolutional with one head": (lambda: conv_net((6,)), 1, (1, 6, 6)),
}


@pytest.mark.parametrize("net", NETS)
def test_a_task_is_answered_alike_to_the_bit_at_the_end_of_the_sequence(net):
    make, heads, shape = NETS[net]
    method = made("packnet", make(), lr=0.3, prune=0.5)
    then = []
    for index in range(3):
        before = copy.deepcopy(method.net.state_dict())
        learn_task(method, index, heads, shape)
        then.append(answer(method, index, heads, shape))
        assert all(not torch.equal(p, before[name]) for name, (p,) in method.ownable.items())
    for index in range(3):
        assert torch.equal(answer(method, index, heads, shape), then[index])
    fresh = made("packnet", make(), seed=7)
    fresh.load_state_dict(copy.deepcopy(method.state_dict()))
    assert all(torch.equal(answer(fresh, index, heads, shape), then[index]) for index in range(3))


def test_each_layer_gives_back_its_smallest_free_weights():
    method = made("packnet", conv_net(), lr=0.3, prune=0.75)
    x, y = task_data(0, (1, 6, 6))
    free = {name: math.prod(p.shape) for name, (p,) in method.ownable.items()}
    assert set(free) == {"trunk.0.weight", "trunk.5.weight"}
    for index in range(3):
        begin(method, index)
        for _ in range(3):
            method.learn(x, y)
        before = {name: p.detach().clone() for name, (p,) in method.ownable.items()}
        method.begin_phase(1, Given(x, y))
        for name, (p,) in method.ownable.items():
            kept = method.owners.of[name] == index + 1
            pruned = method.owners.free(name)
            assert pruned.sum() == round(0.75 * free[name])
            assert before[name].abs()[kept].min() >= before[name].abs()[pruned].max()
            assert torch.equal(p[~pruned], before[name][~pruned])
            assert not p[pruned].any()
            free[name] = int(pruned.sum())


def test_a_step_moves_what_may_learn_and_nothing_else():
    """First the free weights, then the kept ones, each by lr times its gradient in the whole net."""
    method = made("packnet", conv_net(), lr=0.1)
    learn_task(method, 0, 3, (1, 6, 6), steps=2)
    x, y = task_data(1, (1, 6, 6))
    begin(method, 1)
    for phase in (0, 1):
        if phase == 1:
            method.begin_phase(1, Given(x, y))
        before = copy.deepcopy(method.net)
        method.learn(x, y)
        before.eval()  # running statistics are those of the first task
        with before.using(1):
            F.cross_entropy(before(x), y).backward()
        for (name, p), old in zip(method.net.named_parameters(), before.parameters(), strict=True):
            if name in method.ownable:
                moves = method.owners.of[name] == (0 if phase == 0 else 2)
                torch.testing.assert_close(p[moves], (old - 0.1 * old.grad)[moves])
                assert torch.equal(p[~moves], old[~moves])
            elif not name.startswith("heads.1"):
                assert torch.equal(p, old)
            else:
                torch.testing.assert_close(p, old - 0.1 * old.grad)
        assert torch.equal(method.net.trunk[1].running_mean, before.trunk[1].running_mean)


def test_an_unseen_task_is_answered_with_all_owned_weights_and_the_first_with_the_net():
    method = made("packnet", small_net(), lr=0.3)
    x = task_data(0)[0]
    with method.net.using(2):
        plain = method.net(x).detach()
    assert torch.equal(method.logits(x, EvalContext(2, 2), 0, torch.Generator())[0], plain)
    learn_task(method, 0, 3)
    begin(method, 1)
    method.learn(*task_data(1))
    owned = copy.deepcopy(method.net)
    with torch.no_grad():
        for name, p in owned.named_parameters():
            if name in method.ownable:
                p.mul_(method.owners.of[name] == 1)
    for index, net in ((0, owned), (1, method.net), (2, owned)):
        with net.using(index), torch.no_grad():
            torch.testing.assert_close(method.logits(x, EvalContext(index, index), 0, torch.Generator())[0], net(x))


def test_owners_are_packed_in_the_state():
    method = made("packnet", small_net(), lr=0.3)
    for index, bits in ((0, 1), (1, 2), (2, 2)):
        learn_task(method, index, 3, steps=1)
        assert method.state_dict()["owners"]["packed"].numel() == math.ceil(8 * 16 * bits / 8)


@pytest.mark.parametrize(("name", "value"), [("prune", 1.0), ("prune", 0.0), ("retraining", 1.5)])
def test_bad_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be between 0 and 1"):
        made("packnet", small_net(), **{name: value})
