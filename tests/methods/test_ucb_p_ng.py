"""UCB-P-NG: weights that belong to tasks, on a net that learns by natural gradients."""

import copy
import math

import pytest
import torch

from tests.methods.data import Given
from tests.methods.nets import begin, conv_net, made, small_net, task_data
from ucb.bayes import gaussians, mean_forward
from ucb.engine.result import stored_values
from ucb.methods import EvalContext

NETS = {
    "several heads": (small_net, 3, (8,)),
    "one head": (lambda: small_net((6,)), 1, (8,)),
    "convolutional": (conv_net, 3, (1, 6, 6)),
    "convolutional with one head": (lambda: conv_net((6,)), 1, (1, 6, 6)),
}
QUICK = {"lr": 0.2, "samples": 2, "init_std_ratio": 0.5}


def learn_task(method, index, heads=3, shape=(8,), steps=10, until="end"):
    """Learn a task as the engine does: train, claim, train again, end."""
    x, y = task_data(index, shape)
    y = y + (2 * index if heads == 1 else 0)
    data = Given(x, y)
    begin(method, index, heads)
    method.inspect_data(data)
    for _ in range(steps):
        method.learn(x, y)
    if until == "training":
        return data
    method.begin_phase(1, data)
    for _ in range(steps // 2):
        method.learn(x, y)
    if until == "end":
        method.end_task(data)
    return data


def answers(method, index, heads=3, shape=(8,)):
    x, asked = task_data(index, shape)[0], EvalContext(index if heads > 1 else 0, index)
    return [method.logits(x, asked, samples, torch.Generator().manual_seed(3)) for samples in (0, 3)]


@pytest.mark.parametrize("settings", [{}, {"warm": False}, {"clip": 0.5}], ids=["warm", "fresh", "clipped"])
@pytest.mark.parametrize("net", NETS)
def test_a_task_is_answered_alike_to_the_bit_at_the_end_of_the_sequence(net, settings):
    make, heads, shape = NETS[net]
    method = made("ucb-p-ng", make(), prune=0.6, **QUICK, **settings)
    then = []
    for index in range(3):
        learn_task(method, index, heads, shape)
        then.append(answers(method, index, heads, shape))
    fresh = made("ucb-p-ng", make(), seed=7, prune=0.6, **QUICK, **settings)
    fresh.load_state_dict(copy.deepcopy(method.state_dict()))
    for m in (method, fresh):
        for index in range(3):
            for now, before in zip(answers(m, index, heads, shape), then[index], strict=True):
                assert torch.equal(now, before)
    assert all(g.keep is None for _, g in gaussians(method.net))


def test_what_is_owned_rests_with_all_that_is_known_of_it_and_the_rest_moves():
    method = made("ucb-p-ng", conv_net(), prune=0.6, **QUICK)
    learn_task(method, 0, shape=(1, 6, 6))
    known = dict(method.shared_gaussians)
    before = {n: (g.mu.detach().clone(), g.rho.detach().clone()) for n, g in known.items()}
    precision = {n: method.optimizer.state[g.mu]["precision"].clone() for n, g in known.items()}
    owned = {n: ~method.owners.free(n) for n in known}
    learn_task(method, 1, shape=(1, 6, 6))
    moved = []
    for name, g in known.items():
        mu, rho = before[name]
        assert torch.equal(g.mu[owned[name]], mu[owned[name]])
        assert torch.equal(g.rho[owned[name]], rho[owned[name]])
        now = method.optimizer.state[g.mu]["precision"]
        assert torch.equal(now[owned[name]], precision[name][owned[name]])
        own = method.owners.of[name] == 2
        moved.append((g.mu != mu)[own])
        assert (now[own] >= precision[name][own]).all(), "a task's own weights have learnt how sure they are"
        free = method.owners.free(name)
        assert torch.equal(now[free], precision[name][free]), "what is given back has the prior's precision"
    assert torch.cat(moved).float().mean() > 0.9


@pytest.mark.parametrize("ranking", ["snr", "certainty", "magnitude", "fisher"])
def test_each_tensor_keeps_its_most_important_free_weights(ranking):
    method = made("ucb-p-ng", small_net(), prune=0.75, ranking=ranking, **QUICK)
    learn_task(method, 0)
    data = learn_task(method, 1, until="training")
    method.optimizer.measure(method.objective, method.net, *method.held_out)  # what claiming goes by, measured again
    free = {name: method.owners.free(name) for name, _ in method.shared_gaussians}
    torch.manual_seed(0)
    method.generator.manual_seed(11)
    method.begin_phase(1, data)
    for name, g in method.shared_gaussians:
        sigma, h = torch.nn.functional.softplus(g.rho), method.optimizer.state[g.mu]["curvature"]
        omega = {
            "snr": g.mu.abs() / sigma,
            "certainty": 1 / sigma,
            "magnitude": g.mu.abs(),
            "fisher": g.mu**2 * h,
        }[ranking]
        own = method.owners.of[name] == 2
        size = int(free[name].sum())
        assert int(own.sum()) == size - round(0.75 * size)
        rest = free[name] & ~own
        assert omega[own].min() >= omega[rest].max()


def test_random_ranking_keeps_as_many_and_depends_on_the_generator_alone():
    kept = []
    for seed in (0, 0, 1):
        method = made("ucb-p-ng", small_net(), prune=0.75, ranking="random", seed=0, **QUICK)
        data = learn_task(method, 0, until="training")
        method.generator.manual_seed(seed)
        method.begin_phase(1, data)
        kept.append(torch.cat([(owner == 1).flatten() for owner in method.owners.of.values()]))
    assert torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[0], kept[2])
    assert kept[0].sum() == kept[2].sum()


def test_one_ranking_for_the_whole_net_leaves_each_tensor_its_floor():
    method = made("ucb-p-ng", small_net(), prune=0.9, whole_net=True, floor=0.25, **QUICK)
    learn_task(method, 0, until="retraining")
    shares = {name: float((owner == 1).float().mean()) for name, owner in method.owners.of.items()}
    assert min(shares.values()) >= 0.25
    scores = {n: (g.mu.abs() / torch.nn.functional.softplus(g.rho)) for n, g in method.shared_gaussians}
    sizes = sum(score.numel() for score in scores.values())
    kept = sum(int((owner == 1).sum()) for owner in method.owners.of.values())
    assert kept >= sizes - round(0.9 * sizes)


def test_what_is_given_back_takes_no_part_until_the_task_is_over_and_returns_with_its_mean():
    method = made("ucb-p-ng", small_net(), prune=0.75, **QUICK)
    learn_task(method, 0, until="retraining")
    kept = {name: g.mu.detach().clone() for name, g in method.shared_gaussians}
    for name, g in method.shared_gaussians:
        assert torch.equal(g.keep, method.owners.of[name] == 1)
        assert (g.mean[method.owners.free(name)] == 0).all()
    method.end_task(Given(*task_data(0)))
    begin(method, 1)
    for name, g in method.shared_gaussians:
        free = method.owners.free(name)
        assert g.keep is None
        assert torch.equal(g.mu[free], kept[name][free])
        assert torch.allclose(g.sigma[free], torch.as_tensor(method.start[name]).expand_as(g.mu)[free])


def test_a_run_cut_while_it_trains_again_goes_on_with_what_is_set_aside():
    method = made("ucb-p-ng", small_net(), prune=0.75, **QUICK)
    learn_task(method, 0)
    data = learn_task(method, 1, until="retraining")
    fresh = made("ucb-p-ng", small_net(), seed=5, prune=0.75, **QUICK)
    fresh.load_state_dict(copy.deepcopy(method.state_dict()))
    fresh.inspect_data(data)
    x, y = task_data(1)
    for m in (method, fresh):
        for _ in range(3):
            m.learn(x, y)
        m.end_task(data)
    for (name, a), (_, b) in zip(method.shared_gaussians, fresh.shared_gaussians, strict=True):
        assert torch.equal(a.mu, b.mu), name
        assert torch.equal(a.rho, b.rho), name


def test_with_a_tolerance_no_more_is_given_back_than_it_allows():
    method = made("ucb-p-ng", small_net(), prune=0.95, tolerance=0.0, **QUICK)
    assert method.settings.shares() == pytest.approx([0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5])
    learn_task(method, 0, steps=40, until="training")
    x, _ = task_data(0)
    y = mean_forward(method.net.eval(), x).argmax(1)  # whole it is always right: pruning can only lose
    rows = mean_forward(method.net, x).sort(1)[0].diff(dim=1).squeeze().argsort()[:30]  # these are the closest calls
    method.begin_phase(1, Given(x[rows], y[rows]))
    share = float(torch.cat([(owner == 0).flatten() for owner in method.owners.of.values()]).float().mean())
    assert share < 0.9
    assert made("ucb-p-ng", small_net(), prune=0.8, **QUICK).settings.shares() == [0.8]


def test_what_it_stores_is_counted():
    """Mu, rho, curvature and precision of every weight, and two bits for the owner of a shared one."""
    method = made("ucb-p-ng", small_net((2,) * 3), prune=0.75, **QUICK)
    for index in range(3):
        learn_task(method, index)
    trunk, head = 8 * 16 + 16, 16 * 2 + 2
    owners = math.ceil(trunk * 2 / 8)
    state = {k: v for k, v in method.state_dict().items() if k != "first"}
    learning = 2 * (trunk + head)  # curvature and precision of the trunk and of the head that learnt last
    expected = 2 * (trunk + 3 * head) + learning + math.ceil(owners / 4)
    assert expected <= stored_values(state) <= expected + 8, "and a count of steps for each tensor"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"power": 2.0}, "no weight a rate of its own"),
        ({"prune": 1.0}, "prune must be between 0 and 1"),
        ({"retraining": 0.0}, "retraining must be between 0 and 1"),
        ({"floor": 2.0}, "floor must be between 0 and 1"),
        ({"ranking": "luck"}, "ranking"),
    ],
)
def test_wrong_settings_are_refused(settings, expected):
    with pytest.raises(ValueError, match=expected):
        made("ucb-p-ng", small_net(), **settings)
