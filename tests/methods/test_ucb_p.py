import copy
import math

import pytest
import torch

from tests.methods.data import Given
from tests.methods.nets import begin, conv_net, made, small_net, task_data
from ucb.bayes import gaussians, mean_forward
from ucb.methods import EvalContext

NETS = {
    "several heads": (small_net, 3, (8,)),
    "one head": (lambda: small_net((6,)), 1, (8,)),
    "convolutional": (conv_net, 3, (1, 6, 6)),
    "convolutional with one head": (lambda: conv_net((6,)), 1, (1, 6, 6)),
}
QUICK = {"lr": 0.2, "samples": 2}


def learn_task(method, index, heads=3, shape=(8,), steps=15, end=True):
    x, y = task_data(index, shape)
    y = y + (2 * index if heads == 1 else 0)
    begin(method, index, heads)
    for _ in range(steps):
        method.learn(x, y)
    if end:
        method.end_task(Given(x, y, validation=(x, own_answers(method, x))))


def own_answers(method, x):
    """Labels that the whole net always gets right: pruning can only lose, so that some weights are kept."""
    own = method.task.outputs
    return mean_forward(method.net.eval(), x)[:, own.start : own.stop].argmax(1) + own.start


def answers(method, index, heads=3, shape=(8,)):
    x, asked = task_data(index, shape)[0], EvalContext(index if heads > 1 else 0, index)
    return [method.logits(x, asked, samples, torch.Generator().manual_seed(3)) for samples in (0, 3)]


def accuracy(logits, y):
    return 100 * float((logits.argmax(-1) == y).double().mean())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("net", NETS)
def test_a_task_is_answered_alike_to_the_bit_at_the_end_of_the_sequence(net, momentum):
    make, heads, shape = NETS[net]
    method = made("ucb-p", make(), tolerance=5.0, momentum=momentum, **QUICK)
    then = []
    for index in range(3):
        learn_task(method, index, heads, shape)
        then.append(answers(method, index, heads, shape))
    assert max(method.pruned["ratios"][:2]) < 1  # each had weights to keep while others learnt
    fresh = made("ucb-p", make(), seed=7, momentum=momentum, **QUICK)
    fresh.load_state_dict(copy.deepcopy(method.state_dict()))
    for m in (method, fresh):
        for index in range(3):
            for now, before in zip(answers(m, index, heads, shape), then[index], strict=True):
                assert torch.equal(now, before)
    assert all(g.keep is None for _, g in gaussians(method.net))


def test_means_and_spreads_of_owned_weights_rest_and_all_others_move():
    method = made("ucb-p", conv_net(), tolerance=5.0, **QUICK)
    learn_task(method, 0, shape=(1, 6, 6))
    begin(method, 1)
    before = {name: [p.detach().clone() for p in numbers] for name, numbers in method.ownable.items()}
    statistics = method.net.trunk[1].running_mean.clone()
    for _ in range(3):
        method.learn(*task_data(1, (1, 6, 6)))
    moved = []
    for name, numbers in method.ownable.items():
        owned = ~method.owners.free(name)
        assert owned.any()
        for p, old in zip(numbers, before[name], strict=True):
            assert torch.equal(p[owned], old[owned])
            moved.append((p != old)[~owned])
    assert torch.cat(moved).float().mean() > 0.9
    assert torch.equal(method.net.trunk[1].running_mean, statistics)


@pytest.mark.parametrize("kind", ["snr", "certainty"])
def test_the_ratio_is_the_largest_that_the_tolerance_allows(kind):
    """Every ratio is tried again by hand: weights ranked in each tensor, accuracies by the mean weights."""
    method = made("ucb-p", small_net(), tolerance=2.0, importance=kind, step=10.0, **QUICK)
    x, y = task_data(0)
    learn_task(method, 0, steps=60, end=False)
    whole, fitting = accuracy(mean_forward(method.net.eval(), x), y), []
    for percent in (100, 90, 80, 70, 60, 50):
        net = copy.deepcopy(method.net)
        with torch.no_grad():
            for _, g in gaussians(net.trunk):
                omega = 1 / g.sigma if kind == "certainty" else g.mu.abs() / g.sigma
                places = omega.flatten().argsort(stable=True)[: round(percent / 100 * omega.numel())]
                g.mu.view(-1)[places] = 0
        after = accuracy(mean_forward(net, x), y)
        if whole - after <= 2.0:
            fitting.append((percent / 100, after))
    assert 0 < len(fitting) < 6  # the tolerance decides
    method.end_task(Given(torch.zeros(4, 8), torch.zeros(4, dtype=torch.long), validation=(x, y)))
    assert method.pruned["ratios"] == pytest.approx([max(fitting)[0]])
    assert method.pruned["before"] == pytest.approx([whole])
    assert method.pruned["after"] == pytest.approx([max(fitting)[1]])
    assert accuracy(method.logits(x, EvalContext(0, 0), 0, torch.Generator())[0], y) == pytest.approx(max(fitting)[1])
    for name in method.ownable:
        weights = method.owners.of[name]
        assert int(method.owners.free(name).sum()) == round(max(fitting)[0] * weights.numel())


def test_where_no_ratio_fits_one_half_is_pruned():
    method = made("ucb-p", small_net(), tolerance=0.0, step=15.0, **QUICK)
    learn_task(method, 0, steps=60, end=False)
    x, _ = task_data(0)
    y = mean_forward(method.net.eval(), x).argmax(1)  # whole it is always right: pruning can only lose
    rows = (
        mean_forward(method.net, x).sort(1)[0].diff(dim=1).squeeze().argsort()[:30]
    )  # and these are the closest calls
    method.end_task(Given(x[rows], y[rows]))
    assert method.settings.ratios() == pytest.approx([1.0, 0.85, 0.7, 0.55, 0.5])
    assert method.pruned["ratios"] == [0.5]
    assert method.pruned["after"][0] < method.pruned["before"][0] == 100.0


def test_later_tasks_rank_the_free_weights_only_and_a_head_is_never_pruned():
    method = made("ucb-p", small_net(), tolerance=0.0, step=25.0, **QUICK)
    sizes = {name: math.prod(numbers[0].shape) for name, numbers in method.ownable.items()}
    assert set(sizes) == {"trunk.1.weight", "trunk.1.bias"}
    owned = dict.fromkeys(sizes, 0)
    for index in range(3):
        learn_task(method, index)
        for name, size in sizes.items():
            own = int((method.owners.of[name] == index + 1).sum())
            assert own == size - owned[name] - round(method.pruned["ratios"][index] * (size - owned[name]))
            owned[name] += own
    assert method.state_dict()["owners"]["packed"].numel() == math.ceil(sum(sizes.values()) * 2 / 8)
    one_head = made("ucb-p", small_net((6,)))
    assert set(one_head.ownable) == {*sizes, "heads.0.weight", "heads.0.bias"}


def test_free_weights_begin_anew_with_their_first_spread_and_fresh_means():
    torch.manual_seed(0)
    net = conv_net()
    with torch.no_grad():
        net.trunk[1].weight.fill_(1.0)
    method = made("ucb-p", net, tolerance=5.0, **QUICK)
    first = {name: (g.mu.detach().clone(), g.sigma.detach().clone()) for name, g in method.shared_gaussians}
    learn_task(method, 0, shape=(1, 6, 6))
    learnt = {name: (g.mu.detach().clone(), g.sigma.detach().clone()) for name, g in method.shared_gaussians}
    begin(method, 1)
    for name, g in method.shared_gaussians:
        free = method.owners.free(name)
        torch.testing.assert_close(g.sigma[free], first[name][1][free])
        for now, then in zip((g.mu, g.sigma), learnt[name], strict=True):
            assert torch.equal(now[~free], then[~free])
        if g.mu.dim() == 1:  # biases, and scales that begin at 1
            assert torch.equal(g.mu[free], first[name][0][free])
        else:
            bound = 1 / math.sqrt(math.prod(g.mu.shape[1:]))
            assert (g.mu[free] != learnt[name][0][free]).all()
            assert (g.mu[free] != first[name][0][free]).all()
            # Uniform in +-bound, but for the error of the root mean square of the weights that were there first.
            # A root mean square of n uniform numbers has a relative error of 0.45 / sqrt(n); two of them, 4 errors.
            assert g.mu[free].abs().max() < 1.3 * bound
            expected, number = bound / math.sqrt(3), int(free.sum())
            assert g.mu[free].detach().square().mean().sqrt() == pytest.approx(expected, rel=2.6 / math.sqrt(number))


def test_unseen_tasks_are_answered_with_owned_weights():
    method = made("ucb-p", small_net(), tolerance=5.0, **QUICK)
    x = task_data(0)[0]
    with method.net.eval().using(1):
        whole = mean_forward(method.net, x)
    assert torch.equal(method.logits(x, EvalContext(1, 1), 0, torch.Generator())[0], whole)  # before anything began
    learn_task(method, 0)
    pruned = copy.deepcopy(method.net).eval()
    with torch.no_grad():
        for name, g in gaussians(pruned):
            if name in method.ownable:
                g.mu.mul_(method.owners.of[name] == 1)
    for index in (0, 1, 2):
        with pruned.using(index):
            torch.testing.assert_close(method.logits(x, EvalContext(index, index), 0, None)[0], mean_forward(pruned, x))


def test_a_state_from_the_middle_of_a_task_goes_on_alike():
    method = made("ucb-p", conv_net(), tolerance=5.0, momentum=0.9, **QUICK)
    learn_task(method, 0, shape=(1, 6, 6))
    data = task_data(1, (1, 6, 6))
    begin(method, 1)
    method.learn(*data)
    fresh = made("ucb-p", conv_net(), seed=9, momentum=0.9, tolerance=5.0, **QUICK)
    fresh.load_state_dict(copy.deepcopy(method.state_dict()))
    for m in (method, fresh):
        for _ in range(3):
            m.learn(*data)
        m.end_task(Given(*data))
        begin(m, 2)
    first, second = method.state_dict(), fresh.state_dict()
    assert all(torch.equal(first["net"][key], value) for key, value in second["net"].items())
    assert torch.equal(first["owners"]["packed"], second["owners"]["packed"])
    assert first["pruned"] == second["pruned"]
    assert torch.equal(first["generator"], second["generator"])


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("tolerance", -1.0, "tolerance must be 0 or above"),
        ("step", 60.0, "step must be at most 50"),
        ("step", 0.0, "step"),
    ],
)
def test_bad_settings_are_refused(name, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        made("ucb-p", small_net(), **{name: value})
