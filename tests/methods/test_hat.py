import math

import pytest
import torch

from tests.methods.data import Given
from tests.nets.test_stages import conv_net
from ucb.engine.config import replace_fields
from ucb.methods import EvalContext, TaskInfo
from ucb.methods.hat import HAT, HATSettings
from ucb.nets import mlp

X, Y = torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2


def hat(net=None, seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    return HAT(conv_net() if net is None else net, replace_fields(HATSettings(), settings), generator)


def task(index, batches=1, head=None, outputs=None):
    return TaskInfo(index, 20, index if head is None else head, range(2) if outputs is None else outputs, batches)


def use(method, *, every):
    """Let the present task use each ``every``-th unit of each stage, and no other, by gates of exactly 1 and 0."""
    with torch.no_grad():
        for e in method.embedding:
            e.fill_(-1)[::every] = 1


def answers(method, index, head=None):
    return method.logits(X.to(method.free[0].dtype), EvalContext(index if head is None else head, index), 0, None)[0]


def test_weights_between_used_units_do_not_move_by_one_bit_and_others_do():
    method = hat()
    method.begin_task(task(0))
    use(method, every=2)
    method.end_task(Given(X, Y))
    assert [sorted(set(free.tolist())) for free in method.free] == [[0, 1]] * 3
    before = [p.detach().clone() for p in method.net.trunk.parameters()]
    known = answers(method, 0)
    method.begin_task(task(1))
    with torch.no_grad():  # all gates half open, so that every weight has a gradient
        for e in method.embedding:
            e.fill_(0)
    for _ in range(5):
        method.learn(X, Y)
    conv1, bias1, conv2, linear, bias3 = [
        (old != new).reshape(len(old), -1).cpu() for old, new in zip(before, method.net.trunk.parameters(), strict=True)
    ]
    assert not conv1[::2].any()
    assert not bias1[::2].any()
    assert not bias3[::2].any()
    assert not conv2.view(6, 4, 9)[::2, ::2].any()
    assert not linear.view(10, 6, 4)[::2, ::2].any()
    for moved in (
        conv1[1::2],
        bias1[1::2],
        conv2.view(6, 4, 9)[::2, 1::2],
        conv2[1::2],
        linear.view(10, 6, 4)[::2, 1::2],
    ):
        assert moved.any()
    assert torch.equal(answers(method, 0), known)


def test_partly_used_weights_move_by_their_factor(double):
    """One step against the same step without protection: the ratio of the moves is 1 - min(a_i, a_j)."""
    moves = []
    for protect in (True, False):
        torch.manual_seed(0)
        method = hat(mlp((64,), [2, 2], [5, 4]), lr=0.1)
        method.begin_task(task(0))
        with torch.no_grad():
            for e in method.embedding:
                e.copy_(torch.linspace(-2, 2, len(e)) / method.settings.smax)
        method.end_task(Given(X, Y))
        gates = [torch.sigmoid(torch.linspace(-2, 2, n)) for n in (5, 4)]
        method.begin_task(task(1))
        if not protect:
            method.factors = []
        before = [p.detach().clone() for p in method.net.trunk.parameters()]
        method.learn(X.double(), Y)
        moves.append([p.detach() - old for p, old in zip(method.net.trunk.parameters(), before, strict=True)])
    factors = [
        1 - gates[0].unsqueeze(1).expand(5, 64),
        1 - gates[0],
        torch.tensor([[1 - min(gates[0][j], gates[1][i]) for j in range(5)] for i in range(4)]),
        1 - gates[1],
    ]
    for held, loose, factor in zip(*moves, factors, strict=True):
        torch.testing.assert_close(held, loose * factor)


def test_the_price_of_gates_is_the_papers(double):
    method = hat(mlp((64,), [2, 2], [5, 4]), sparsity=0.6)
    gates = [torch.rand(5), torch.rand(4)]
    method.net.gates = gates
    plain = method.objective(torch.tensor(0.0))
    torch.testing.assert_close(plain, 0.6 * torch.cat(gates).mean())  # the first task: a plain mean
    largest = [torch.rand(5), torch.rand(4)]
    method.free = [1 - a for a in largest]
    above = sum(
        a * (1 - m) for g, largest_ in zip(gates, largest, strict=True) for a, m in zip(g, largest_, strict=True)
    )
    below = sum(1 - m for largest_ in largest for m in largest_)
    torch.testing.assert_close(method.objective(torch.tensor(1.5)), 1.5 + 0.6 * above / below)
    method.free = [torch.zeros(5), torch.zeros(4)]  # nothing is left: nothing to pay, and no NaN
    assert method.objective(torch.tensor(1.5)) == 1.5


def test_embeddings_get_the_gradient_of_a_slope_of_their_own(double):
    """The compensated gradient is dL/da times that of sigmoid(e), smax times as steep; dL/da is autograd's."""
    method = hat(mlp((64,), [2, 2], [5, 4]), smax=30.0, lr=1e-3)
    method.begin_task(task(0, batches=5))
    method.batch.fill_(2)  # in the middle of an epoch
    slope = 1 / 30 + (30 - 1 / 30) * 2 / 4
    before = [e.detach().clone() for e in method.embedding]
    gates = [torch.sigmoid(slope * e).requires_grad_() for e in before]
    method.net.gates = gates
    loss = method.nll(method.net(X.double()), Y) + 0.75 * torch.cat(gates).mean()
    expected = torch.autograd.grad(loss, gates)
    method.learn(X.double(), Y)
    for e, old, with_gates in zip(method.embedding, before, expected, strict=True):
        sigmoid = torch.sigmoid(old)
        torch.testing.assert_close(e.grad, 30 * sigmoid * (1 - sigmoid) * with_gates, rtol=1e-5, atol=1e-12)
        torch.testing.assert_close(e, old - 1e-3 * e.grad)


def test_gates_harden_through_an_epoch_and_start_anew():
    method = hat(smax=50.0)
    method.begin_task(task(0, batches=4))
    slopes = []
    for _ in range(6):
        method.learn(X, Y)
        slopes.append(float(method.slope))
    low, high = 1 / 50, 50.0
    steps = [low + (high - low) * k / 3 for k in (0, 1, 2, 3, 0, 1)]
    assert slopes == pytest.approx(steps, rel=1e-5)
    method.begin_task(task(1, batches=1))  # an epoch of one batch has hard gates
    method.learn(X, Y)
    assert float(method.slope) == 50


def test_embeddings_stay_within_reach_and_old_ones_stay():
    method = hat(lr=50.0, sparsity=5.0)
    method.begin_task(task(0, batches=4))  # the first gates are soft: hard ones have next to no gradient
    method.learn(X, Y)
    assert max(e.detach().abs().max() for e in method.embedding) == 6
    method.end_task(Given(X, Y))
    kept = [e.clone() for e in method.learnt[0]]
    method.begin_task(task(1))
    for _ in range(3):
        method.learn(X, Y)
    assert all(torch.equal(a, b) for a, b in zip(kept, method.learnt[0], strict=True))


def test_one_head_keeps_what_old_tasks_read_from_it():
    """The head's outputs count as units: those of task 1 keep their weights from used units, and their biases."""
    method = hat(conv_net([4]))
    method.begin_task(task(0, head=0))
    use(method, every=2)
    method.end_task(Given(X, Y))
    known = answers(method, 0, head=0)[:, :2]
    method.begin_task(task(1, head=0, outputs=range(2, 4)))
    head = method.net.heads[0]
    before = head.weight.detach().clone()
    for _ in range(5):
        method.learn(X, Y + 2)
    assert torch.equal(answers(method, 0, head=0)[:, :2], known)
    moved = head.weight != before
    assert not moved[:2, ::2].any()
    assert moved[2:].any(0)[::2].any()  # the new task's outputs may read used units


def test_a_task_that_never_began_is_answered_by_the_open_net():
    method = hat()
    method.net.eval()
    with method.net.using(2):
        assert torch.equal(answers(method, 2), method.net(X))
    method.begin_task(task(0))
    assert not torch.equal(answers(method, 0), answers(method, 2))


@pytest.mark.parametrize(("setting", "value"), [("smax", 0.5), ("smax", math.inf), ("sparsity", -1.0)])
def test_settings_are_checked(setting, value):
    with pytest.raises(ValueError, match=setting):
        HATSettings(**{setting: value})
