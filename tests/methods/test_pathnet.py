import math
from itertools import chain

import pytest
import torch
from torch import nn

from tests.methods.data import Given
from tests.nets.test_stages import conv_net
from ucb.methods import EvalContext, TaskInfo
from ucb.methods.pathnet import Evolution, PathNet, PathNetSettings
from ucb.nets import mlp

X, Y = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 2
NETS = {"mlp": lambda: mlp((1, 8, 8), [2, 2, 2], [60, 50]), "conv": conv_net}


def pathnet(net=None, seed=0, **settings):
    settings = {"modules": 5, "generations": 3, **settings}
    net = NETS["mlp"]() if net is None else net
    return PathNet(net, PathNetSettings(**settings), torch.Generator().manual_seed(seed))


def learn_task(method, index, steps=16, batches=8):
    method.begin_task(TaskInfo(index, 40, index, range(2), batches))
    for _ in range(steps):
        method.learn(X, Y)


def weights(module):
    return [p.detach().clone() for p in module.parameters()]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", NETS)
def test_a_finished_path_stays_and_all_other_modules_are_drawn_anew(kind):
    method = pathnet(NETS[kind](), lr=0.3)
    kept, known = {}, {}
    for index in range(3):
        learn_task(method, index)
        path = method.evolution.best
        before = [[weights(module) for module in bank] for bank in method.net.banks]
        answer = method.logits(X, EvalContext(index, index), 0, None)
        method.end_task(Given(X, Y))
        assert method.paths[index] == path
        assert torch.equal(method.logits(X, EvalContext(index, index), 0, None), answer)
        known[index] = answer
        kept |= {(d, i): before[d][i] for d, used in enumerate(path) for i in used}
        for d, bank in enumerate(method.net.banks):
            for i, module in enumerate(bank):
                assert any(p.requires_grad for p in module.parameters()) == ((d, i) not in kept)
                assert same(weights(module), kept.get((d, i), before[d][i])) == ((d, i) in kept)
        for old, logits in known.items():
            assert torch.equal(method.logits(X, EvalContext(old, old), 0, None), logits)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_the_fitter_of_two_paths_wins(order):
    """Modules 3 and 4 give nothing but zeros and cannot learn: a path through them can only guess."""
    method = pathnet(lr=0.3, generations=1)
    method.begin_task(TaskInfo(0, 40, 0, range(2), batches=30))
    for bank in method.net.banks:
        for module in bank[3:]:
            for parameter in module.requires_grad_(False).parameters():
                parameter.zero_()
    dead, live = [[3, 4, 4], [4, 3, 3]], [[0, 1, 2], [0, 1, 1]]
    method.evolution = Evolution([dead, live], [-1.0, -1.0], pair=order)
    for step in range(60):
        assert method.evolution.contender == ([dead, live][order[step // 30]])
        method.learn(X, Y)
    at = method.evolution
    assert (at.pair, at.generations, at.best) == ([], 1, live)
    assert at.scores[1] > 0.7
    assert at.scores[0] == -1  # a copy of the winner stands there, whose worth is unknown
    assert at.population[0] != dead
    method.learn(X, Y)
    assert method.net.path == live  # the winner goes on alone


def test_a_score_is_the_mean_training_accuracy(monkeypatch):
    method = pathnet(generations=1)
    method.begin_task(TaskInfo(0, 40, 0, range(2), batches=4))
    pair, seen = method.evolution.pair, []
    nll = method.nll
    monkeypatch.setattr(method, "nll", lambda logits, y: seen.append(logits.argmax(1) == y) or nll(logits, y))
    for _ in range(4):
        method.learn(X, Y)
    assert method.evolution.scores[pair[0]] == pytest.approx(float(torch.cat(seen).float().mean()))


def test_mutation_moves_numbers_by_two_at_most_around_the_bank():
    method = pathnet(modules=7)
    path, trials = [[0, 3, 6], [1, 1, 5]], 4000
    moved, steps = 0, set()
    for _ in range(trials):
        for old, new in zip(chain(*path), chain(*method.mutate(path)), strict=True):
            step = (new - old + 3) % 7 - 3
            steps.add(step)
            moved += step != 0
    assert steps == {-2, -1, 0, 1, 2}
    chance = 1 / 6 * 4 / 5  # one move in six is due, and one move in five is by nothing
    error = math.sqrt(chance * (1 - chance) / (6 * trials))
    assert abs(moved / (6 * trials) - chance) < 4 * error
    assert path == [[0, 3, 6], [1, 1, 5]]


@pytest.mark.parametrize(
    ("batches", "evolution", "expected"),
    [(160, 2.0, (8, 20)), (8, 2.0, (1, 8)), (8, 0.0, (1, 0)), (400, 1.0, (10, 20))],
)
def test_an_evolution_keeps_to_its_share(batches, evolution, expected):
    method = pathnet(generations=20, evolution=evolution)
    method.begin_task(TaskInfo(0, 40, 0, range(2), batches))
    assert method.schedule() == expected
    steps = 0
    while method.evolution.pair:
        method.learn(X[:2], Y[:2])
        steps += 1
    assert steps == 2 * math.prod(expected) <= evolution * batches


def test_a_larger_population_sends_two_different_paths_into_each_tournament():
    method = pathnet(population=4)
    pairs = {tuple(method.contenders()) for _ in range(200)}
    assert pairs == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_outputs_of_the_modules_in_use_are_summed(double):
    net = pathnet(mlp((64,), [2, 2, 2], [60])).net.eval()
    net.path = [[4, 1, 4]]
    x = torch.randn(6, 64)
    features = sum(torch.relu(nn.functional.linear(x, *net.banks[0][i][0].parameters())) for i in (1, 4))
    torch.testing.assert_close(net(x), net.heads[0](features))


@pytest.mark.parametrize("given", [lambda: mlp((784,), [2] * 5), lambda: mlp((784,), [10], [300, 300])])
def test_the_bank_is_as_large_as_the_given_net(given):
    net = given()
    limit = sum(p.numel() for p in net.parameters())
    method = pathnet(net, modules=16)
    assert 0.97 * limit <= sum(p.numel() for p in method.net.parameters()) <= limit
    assert [len(bank) for bank in method.net.banks] == [16] * len(method.net.banks)


@pytest.mark.parametrize(
    ("setting", "value"), [("modules", 0), ("active", 0), ("population", 1), ("generations", 0), ("evolution", -1.0)]
)
def test_settings_are_checked(setting, value):
    with pytest.raises(ValueError, match=setting):
        PathNetSettings(**{setting: value})
