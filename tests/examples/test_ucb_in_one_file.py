"""The method from scratch is the package's method: step by step in double precision, rule by rule, in its figures."""

import importlib.util
import json
import math
import random
import re
import statistics
from pathlib import Path

import pytest
import torch

import ucb
from tests.methods.data import Given
from tests.methods.nets import begin, made
from ucb.bayes import gaussians
from ucb.engine import Schedule, Training
from ucb.engine.config import recipe_for, replace_fields
from ucb.engine.training import Plateau
from ucb.methods import EvalContext, known_methods
from ucb.metrics import AccuracyMatrix
from ucb.nets import mlp

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "ucb_in_one_file.py"
RESULTS = ROOT / "results"
METHODS = ("ucb", "ucb-p")
SEEDS = (1, 2, 3)


@pytest.fixture
def one(monkeypatch):
    """The file as a module, with a small net in double precision; PyTorch's generator is as it was afterwards."""
    spec = importlib.util.spec_from_file_location("ucb_in_one_file", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HIDDEN", 12)
    before, dtype = torch.get_rng_state(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield module
    torch.set_default_dtype(dtype)
    torch.set_rng_state(before)


def settings_of(method):
    """The settings of the package's recipe, with the defaults of what it does not name."""
    return replace_fields(known_methods()[method].settings_type(), recipe_for("5split-mnist", method).settings)


def twin_of(one, net, method, **others):
    """The package's method, at the weights of a net of the file."""
    settings = recipe_for("5split-mnist", method).settings | others
    twin = made(method, mlp((784,), [2] * len(net.heads), [one.HIDDEN]), **settings)
    copy_weights(net, twin)
    return twin


def pairs(net, method):
    ours = [g for layer in (net.trunk, *net.heads) for g in layer.gaussians]
    return list(zip(ours, [g for _, g in gaussians(method.net)], strict=True))


@torch.no_grad()
def copy_weights(net, method):
    for ours, theirs in pairs(net, method):
        theirs.mu.copy_(ours.mu)
        theirs.rho.copy_(ours.rho)


def assert_same_weights(net, method):
    for ours, theirs in pairs(net, method):
        torch.testing.assert_close(ours.mu, theirs.mu.detach(), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(ours.rho, theirs.rho.detach(), rtol=1e-9, atol=1e-12)


def batch(rows=40):
    x = torch.randn(rows, 784)
    return x, (x[:, :50].sum(1) > 0).long()


def learn_both(one, net, method, task, size=100, steps=6):
    """Take the same steps with the same noise."""
    begin(method, task, heads=len(net.heads), size=size)
    if task > 0:
        copy_weights(net, method)  # UCB-P's free weights begin anew, at random
    s = one.SETTINGS[method.name]
    for step in range(steps):
        x, y = batch()
        torch.manual_seed(step)
        method.generator.manual_seed(step)
        one.descend(one.elbo(net, x, y, task, size, s), net.learning(task), s.lr)
        method.learn(x, y)


@pytest.mark.parametrize("method", METHODS)
def test_settings_are_those_of_the_recipe(one, method):
    found, s, defaults = settings_of(method), one.SETTINGS[method], Training()
    assert (s.lr, s.temperature, s.pi) == (found.lr, found.temperature, found.pi)
    assert (s.sigma_1, s.sigma_2) == (math.exp(-found.log_sigma_1), math.exp(-found.log_sigma_2))
    assert (found.clip, found.init_std_ratio) == (one.CLIP, one.INIT_STD_RATIO)
    assert found.samples == defaults.eval_samples == one.SAMPLES
    assert (found.estimator, found.prior_samples, found.momentum, found.rho_lr) == ("local", 1, 0, 0)
    assert recipe_for("5split-mnist", method).training == {"epochs": one.EPOCHS}
    schedule = Schedule(one.EPOCHS, one.PATIENCE, one.FACTOR, one.LEAST_RATE)
    assert Training(schedule, one.BATCH) == defaults
    if method == "ucb":
        assert (found.gain, found.cap, found.importance, found.on) == (s.gain, 1.0, "certainty", "mu")
    else:
        assert (found.tolerance, found.step, found.importance) == (s.tolerance, 5.0, "snr")


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_and_its_gradient_are_the_packages(one, method):
    net, s, (x, y) = one.Net(2), one.SETTINGS[method], batch()
    twin = twin_of(one, net, method)
    begin(twin, 0, heads=2)
    torch.manual_seed(5)
    loss = one.elbo(net, x, y, 0, 100, s)
    loss.backward()
    prior = ucb.ScaleMixture(s.pi, s.sigma_1, s.sigma_2)
    objective = ucb.ELBO(100, prior, temperature=s.temperature, samples=one.SAMPLES, estimator="local")
    torch.manual_seed(5)
    terms = objective(twin.net, x, y)
    terms.loss.backward()
    torch.testing.assert_close(loss, terms.loss, rtol=1e-10, atol=0)
    for ours, theirs in pairs(net, twin)[:4]:  # the trunk and the first head
        torch.testing.assert_close(ours.mu.grad, theirs.mu.grad, rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(ours.rho.grad, theirs.rho.grad, rtol=1e-8, atol=1e-12)
    assert all(ours.mu.grad is None and theirs.mu.grad is None for ours, theirs in pairs(net, twin)[4:])


def test_the_net_begins_where_the_package_begins(one):
    torch.manual_seed(3)
    net = one.Net(2)
    torch.manual_seed(3)
    twin = made("ucb", mlp((784,), [2, 2], [one.HIDDEN]))
    assert_same_weights(net, twin)


@pytest.mark.parametrize("method", METHODS)
def test_a_task_and_what_the_next_one_learns_after_it_are_the_packages(one, method):
    """Weights are compared after the steps of a task, its end, and the steps of the next task."""
    net = one.Net(2)
    twin = twin_of(one, net, method)
    learn_both(one, net, twin, task=0)
    assert_same_weights(net, twin)
    x, y = batch(rows=300)
    if method == "ucb":
        one.slow_down(net, one.SETTINGS[method])
        twin.end_task(Given(x, y))
        scales = [twin.optimizer.state[theirs.mu]["scale"] for _, theirs in pairs(net, twin)[:2]]
        for g, scale in zip(net.trunk.gaussians, scales, strict=True):
            torch.testing.assert_close(g.rate, scale, rtol=1e-12, atol=0)
    else:
        end_both(one, net, twin, 0)
        one.restart_free_weights(net)
    before = [g.mu.detach().clone() for g in net.trunk.gaussians]
    learn_both(one, net, twin, task=1)
    assert_same_weights(net, twin)
    for g, old in zip(net.trunk.gaussians, before, strict=True):
        held = g.owner > 0
        assert torch.equal(g.mu[held], old[held])
        assert not torch.equal(g.mu, old)


def end_both(one, net, method, task):
    """End a task on held-out data that the whole net gets right, so that pruning can only lose."""
    x, _ = batch(rows=300)
    y = net(x, task, 0).squeeze(1).argmax(1)
    s = one.SETTINGS["ucb-p"]._replace(tolerance=method.settings.tolerance)
    share = one.prune(net, task, one.Task(*[None] * 2, x, y, *[None] * 2), s)
    method.end_task(Given(x, y))
    one.use_weights_of(net, None)
    assert share == pytest.approx(method.pruned["ratios"][-1])
    return share


def test_pruning_keeps_the_packages_weights_and_old_tasks_answer_alike(one):
    net = one.Net(3)
    twin = twin_of(one, net, "ucb-p")
    x, _ = batch()
    for task in range(3):
        if task > 0:
            one.restart_free_weights(net)
        learn_both(one, net, twin, task)
        assert 0.5 <= end_both(one, net, twin, task) < 1
        owners = [owner for name, owner in twin.owners.of.items() if name.startswith("trunk.")]
        for g, owner in zip(net.trunk.gaussians, owners, strict=True):
            assert torch.equal(g.owner, owner.to(g.owner))
        assert (net.trunk.gaussians[0].owner == task + 1).any()
        for old in range(task + 1):
            one.use_weights_of(net, old)
            theirs = twin.logits(x, EvalContext(old, old), 0, twin.generator)[0]
            torch.testing.assert_close(net(x, old, 0).squeeze(1).detach(), theirs, rtol=1e-10, atol=1e-12)
        one.use_weights_of(net, None)


@pytest.mark.parametrize("tolerance", [1.0, 3.0, 20.0, 100.0])
def test_as_much_is_pruned_as_in_the_package(one, tolerance):
    """Few weights are large here, and how many a task needs varies; what earlier tasks own serves later ones."""
    net, shares = one.Net(4), []
    twin = twin_of(one, net, "ucb-p", tolerance=tolerance)
    for task in range(4):
        for g in net.trunk.gaussians:
            g.mu.detach().copy_(torch.where(g.owner == 0, torch.randn(g.mu.shape) ** 5, g.mu.detach()))
        begin(twin, task, heads=4)
        copy_weights(net, twin)
        shares.append(end_both(one, net, twin, task))
        owners = [owner for name, owner in twin.owners.of.items() if name.startswith("trunk.")]
        for g, owner in zip(net.trunk.gaussians, owners, strict=True):
            assert torch.equal(g.owner, owner.to(g.owner))
    assert len(set(shares)) > 1 or shares == [1.0] * 4
    assert min(shares) > 0.5


@pytest.mark.parametrize("pruned", [0.0, 0.35, 1.0])
def test_weights_are_ranked_as_in_the_package(one, pruned):
    g = one.Gaussian(torch.randn(30, 20).round(decimals=1), 0.1)  # many are equally important
    g.owner[torch.rand(30, 20) < 0.3] = 1
    omega = ucb.optim.importance("snr", g.mu.detach(), g.sigma.detach())
    least = ucb.optim.least_important(omega, pruned, g.owner == 0)
    assert torch.equal(one.find_important(g, pruned), (g.owner == 0) & ~least)


def test_free_weights_begin_anew_and_owned_ones_stay(one):
    net = one.Net(1)
    weight = net.trunk.gaussians[0]
    weight.owner[:6] = 1
    with torch.no_grad():
        weight.mu.fill_(7.0)
        weight.rho.fill_(7.0)
    one.restart_free_weights(net)
    assert (weight.mu[:6] == 7).all()
    assert (weight.rho[:6] == 7).all()
    assert 0.9 / 28 < weight.mu[6:].abs().max() <= 1 / 28  # uniform up to 1 / sqrt(784)
    first = settings_of("ucb-p").init_std_ratio / (28 * math.sqrt(3))
    torch.testing.assert_close(weight.sigma[6:].detach(), torch.full((6, 784), first), rtol=0.03, atol=0)


@pytest.mark.parametrize("seed", range(4))
def test_the_rate_falls_and_the_best_epoch_is_kept_as_in_the_package(one, monkeypatch, seed):
    """Held-out losses are given; each epoch's step leaves its number in the weights."""
    chance = random.Random(seed)
    losses = [chance.random() for _ in range(200)]
    net, rates = one.Net(1), []
    data = one.Task(*batch(one.BATCH), None, None, None, None)

    def note(loss, learning, lr):
        rates.append(lr)
        for g in learning:
            g.mu.detach().fill_(len(rates))

    monkeypatch.setattr(one, "descend", note)
    monkeypatch.setattr(one, "measure_loss", lambda *_: losses[len(rates) - 1])
    one.learn_task(net, 0, data, one.SETTINGS["ucb"], epochs=200)
    plateau = Plateau(Schedule(epochs=200), one.SETTINGS["ucb"].lr)
    expected = []
    while not plateau.is_over:
        expected.append(plateau.rate)
        plateau.observe(losses[len(expected) - 1])
    assert rates == expected
    assert len(rates) < 200
    assert set(net.trunk.gaussians[0].mu.flatten().tolist()) == {1.0 + losses.index(plateau.best)}


def test_acc_and_bwt_are_the_packages(one):
    accuracy = [[99.0], [98.0, 97.5], [90.25, 97.75, 95.0]]
    matrix = AccuracyMatrix(accuracy)
    assert one.acc_and_bwt(accuracy) == pytest.approx((matrix.acc, matrix.bwt))


def test_tasks_are_the_benchmarks(one):
    torch.set_default_dtype(torch.float32)
    tasks, stream = one.split_mnist(), ucb.benchmark("mnist-5split")
    assert len(tasks) == len(stream)
    for ours, theirs in zip(tasks, stream.tasks, strict=True):
        assert [len(ours.y), len(ours.y_held_out)] == [len(theirs.train), len(theirs.validation)]
        ((x_test, y_test),) = theirs.test.in_order(10_000, torch.device("cpu"))
        assert torch.equal(ours.x_test, theirs.prepare(x_test).flatten(1))
        assert torch.equal(ours.y_test, y_test)
    ours, theirs = tasks[2], stream.tasks[2]
    given = [part.in_order(20_000, torch.device("cpu")) for part in (theirs.train, theirs.validation)]
    x, y = (torch.cat(parts) for parts in zip(*(next(part) for part in given), strict=True))
    direction = torch.randn(784)  # two different images are equally long along it almost never
    found = torch.cat([ours.x, ours.x_held_out]) @ direction + 1e3 * torch.cat([ours.y, ours.y_held_out])
    expected = theirs.prepare(x).flatten(1) @ direction + 1e3 * y
    torch.testing.assert_close(found.sort().values, expected.sort().values, rtol=0, atol=1e-2)


def note_calls(name, real, calls):
    """A function that does what the real one does and notes that it was called; held-out data does not count."""

    def call(*words, **options):
        if options.get("samples") != 0:
            calls.append(name)
        return real(*words, **options)

    return call


def test_both_methods_do_their_part_after_each_task_and_share_a_result_file(one, monkeypatch, tmp_path, capsys):
    torch.set_default_dtype(torch.float32)
    calls, out = [], tmp_path / "new" / "figures.json"
    for name in ("learn_task", "count_right", "slow_down", "prune", "restart_free_weights"):
        monkeypatch.setattr(one, name, note_calls(name, getattr(one, name), calls))
    tasks = one.split_mnist()
    monkeypatch.setattr(one, "split_mnist", lambda: tasks)
    learnt = ["learn_task", "count_right"]
    parts = {
        "ucb": [*learnt, "slow_down", *learnt, "slow_down", "count_right"],
        "ucb-p": [*learnt, "prune", "restart_free_weights", *learnt, "prune", "count_right"],
    }
    for method, expected in parts.items():
        monkeypatch.setattr("sys.argv", [str(FILE), "--quick", "--method", method, "--seed", "7", "--out", str(out)])
        calls.clear()
        one.main()
        assert calls == expected
        printed = capsys.readouterr().out.splitlines()
        assert [line.partition(":")[0] for line in printed] == ["after task 1", "after task 2", f"{method}, seed 7"]
    found = json.loads(out.read_text())
    assert list(found) == ["ucb-seed7", "ucb-p-seed7"]
    assert all(run["quick"] and len(run["accuracy_matrix"]) == 2 for run in found.values())
    assert all(run["acc"] > 70 for run in found.values())


def figures_of(runs, name):
    """Mean and standard deviation over seeds."""
    values = [run[name] for run in runs]
    return statistics.fmean(values), statistics.stdev(values)


def measured(method):
    found = json.loads((RESULTS / "examples" / "ucb_in_one_file.json").read_text())
    return [found[f"{method}-seed{seed}"] for seed in SEEDS]


def of_the_package(method):
    paths = sorted((RESULTS / "tables" / "5split-mnist").glob(f"{method}-seed?.json"))
    assert len(paths) == 3
    return [json.loads(path.read_text()) for path in paths]


@pytest.mark.parametrize("method", METHODS)
def test_the_header_says_what_the_file_and_the_package_measured(one, method):
    (line,) = re.findall(rf"^ +{method} .*$", one.__doc__, re.MULTILINE)
    said = re.findall(r"([+-]?[\d.]+) \+- ([\d.]+)", line)
    runs = (measured(method), of_the_package(method))
    expected = [figures_of(each, name) for each in runs for name in ("acc", "bwt")]
    assert [(float(value), float(spread)) for value, spread in said] == [
        (pytest.approx(value, abs=0.005), pytest.approx(spread, abs=0.005)) for value, spread in expected
    ]


@pytest.mark.parametrize("name", ["acc", "bwt"])
@pytest.mark.parametrize("method", METHODS)
def test_the_figures_lie_within_the_packages_spread(method, name):
    """The means differ by at most twice the combined standard deviation."""
    (ours, our_spread), (theirs, their_spread) = (
        figures_of(runs, name) for runs in (measured(method), of_the_package(method))
    )
    assert abs(ours - theirs) <= 2 * math.hypot(our_spread, their_spread)


@pytest.mark.parametrize("method", METHODS)
def test_kept_figures_are_those_of_whole_runs(one, method):
    for run in measured(method):
        assert not run["quick"]
        assert len(run["accuracy_matrix"]) == 5
        assert one.acc_and_bwt(run["accuracy_matrix"]) == pytest.approx((run["acc"], run["bwt"]))
        assert len(run["pruned"]) == (5 if method == "ucb-p" else 0)
