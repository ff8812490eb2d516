"""UCB-NG as a method: which inputs its curvature comes from, and that it tells the truth on real digits."""

import json
import statistics
from importlib.resources import files

import pytest
import torch
from torch import nn

from tests.engine.runs import small_run
from ucb.bayes import gaussians
from ucb.bayes.curvature import class_roots
from ucb.engine import Job
from ucb.methods import TaskInfo
from ucb.methods.per_example import mean_powers
from ucb.methods.ucb_ng import thin_out
from ucb.observer import Observer


def test_every_held_out_input_has_its_turn():
    run = small_run("ucb-ng", samples=2)
    run._begin(run._data_of(0))
    method, data = run.method, run._data_of(0)
    method.inspect_data(data)
    held, rows, seen = len(method.held_out[0]), 6, []
    assert held == len(run.stream.tasks[0].validation)
    for _ in range(3 * held):
        seen += method._next(rows, [torch.arange(held)]).tolist()
        method.optimizer.state[method.optimizer.learning_means()[0]]["seen"] += 1
    assert torch.bincount(torch.tensor(seen), minlength=held).tolist() == [3 * rows] * held


def test_curvature_comes_from_held_out_inputs_and_in_a_stream_from_those_at_hand():
    run = small_run("ucb-ng")
    run._begin(run._data_of(0))
    method, x, y = run.method, torch.randn(32, 8), torch.zeros(32, dtype=torch.long)
    looked, see = [], method.optimizer.see

    def noting(objective, net, x):
        looked.append(x)
        return see(objective, net, x)

    method.optimizer.see = noting
    method.add_gradients(x, y)
    assert torch.equal(looked[0], x)
    method.inspect_data(run._data_of(0))
    method.add_gradients(x, y)
    held = {tuple(row.tolist()) for row in method.held_out[0]}
    assert {tuple(row.tolist()) for row in looked[1]} <= held


def test_what_a_task_leaves_depends_on_its_last_means_alone():
    """The running curvature may have been gathered in two epochs or in eight, and on another way."""
    kept = []
    for noise in (1.0, 100.0):
        run = small_run("ucb-ng")
        run._begin(run._data_of(0))
        for group in run.method.optimizer.gaussian_groups():
            run.method.optimizer.state[group["params"][0]]["curvature"].fill_(noise)
        run.method.end_task(run._data_of(0))
        groups = run.method.optimizer.gaussian_groups()
        kept.append([run.method.optimizer.state[group["params"][0]]["precision"] for group in groups])
    assert all(torch.equal(a, b) for a, b in zip(*kept, strict=True))


def test_after_an_epoch_the_curvature_is_that_of_the_present_means():
    """Whatever was gathered in the epoch, over many steps or few; the running mean goes on from there."""
    refreshed = []
    for noise, steps in ((1.0, 2.0), (100.0, 3000.0)):
        run = small_run("ucb-ng", epochs=1)
        run._begin(run._data_of(0))
        method, data = run.method, run._data_of(0)
        method.inspect_data(data)
        states = [method.optimizer.state[mu] for mu in method.optimizer.learning_means()]
        for state in states:
            state["curvature"].fill_(noise)
            state["seen"].fill_(steps)
        method.end_epoch(data)
        refreshed.append([state["curvature"].clone() for state in states])
        assert [float(state["seen"]) for state in states] == [max(steps, 1 / method.settings.beta)] * len(states)
    assert all(torch.equal(a, b) for a, b in zip(*refreshed, strict=True))
    assert all(curvature.any() for curvature in refreshed[0])


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_a_step_spends_no_time_on_gradients_by_rho(estimator):
    run = small_run("ucb-ng", estimator=estimator)
    run._begin(run._data_of(0))
    method = run.method
    before = {g: g.rho.detach().clone() for _, g in gaussians(method.net.trunk)}
    method.learn(torch.randn(32, 8), torch.zeros(32, dtype=torch.long))
    assert all(g.rho.grad is None and g.mu.grad is not None for g in before)
    assert all(g.rho.requires_grad and not torch.equal(g.rho, old) for g, old in before.items()), "but sigma moves"


def test_other_tasks_outputs_take_no_part_in_the_curvature():
    run = small_run("ucb-ng", own_classes=True)
    method = run.method
    method.begin_task(TaskInfo(0, 300, 0, range(1)))
    assert method.objective.curvature_roots(torch.randn(5, 2)).shape == (5, 0), "one class alone is always right"


def test_too_many_held_out_inputs_are_thinned_evenly():
    rows = torch.arange(1000.0).reshape(-1, 1)
    for size in (1, 7, 64, 1000):
        (kept,) = (part.flatten().long() for part in thin_out(rows.split(size), 100))
        assert 50 <= len(kept) <= 100
        assert len(set(kept.diff().tolist())) == 1
    assert torch.equal(thin_out(rows.split(64), 1000)[0], rows)
    assert len(thin_out([rows[:1]], 0)[0]) == 1


def spearman(a, b):
    ranks = torch.stack([a.argsort().argsort(), b.argsort().argsort()]).double()
    return float(torch.corrcoef(ranks)[0, 1])


class Curvatures(Observer):
    """Compares the curvature with the exact Fisher of held-out examples and, apart from these, of test examples.

    A layer's weights and biases are ranked together. Of digits that a net is sure of, few make up the Fisher: that of
    two sets differs by a third, and their ranks by as much. So test examples must be ranked as well as the exact Fisher
    of the held-out ones ranks them.
    """

    def __init__(self):
        self.ends, self.middles, self.run = {}, [], None

    def batch_learnt(self, task, epoch, batch, batches):
        if epoch > 0 and batch in (batches // 4, batches // 2, 3 * batches // 4):
            self.middles.append(self.compare(self.running, test=False))

    def epoch_ended(self, epoch):
        if epoch.epoch > 0:
            self.ends[epoch.epoch + 1] = self.compare(self.running)

    def running(self, mu):
        return self.run.method.optimizer.state[mu]["curvature"]

    def compare(self, curvature_of, test=True):
        """Of each layer: the ranks' correlation and the median ratio, and the correlation lost in test examples."""
        task = self.run.stream.tasks[0]
        weights = dict(gaussians(self.run.method.net))
        compared = {}
        held_out = self.fishers(task.validation)
        unseens = self.fishers(task.test) if test else held_out
        for name, exact in held_out.items():
            unseen = unseens[name]
            ours = torch.cat([curvature_of(weights[f"{name}.{own}"].mu).flatten() for own in ("weight", "bias")])
            some, both = exact > 0, (exact > 0) & (unseen > 0)
            lost = spearman(exact[both], unseen[both]) - spearman(ours[both], unseen[both])
            compared[name] = spearman(ours[some], exact[some]), float((ours[some] / exact[some]).median()), lost
        return compared

    def fishers(self, examples):
        """Return the exact Fisher of each layer, by an ordinary net of the means."""
        weights, task = dict(gaussians(self.run.method.net)), self.run.stream.tasks[0]
        layers = {name: nn.Linear(*weights[f"{name}.weight"].mu.T.shape) for name in ("trunk.1", "heads.0")}
        with torch.no_grad():
            for name, layer in layers.items():
                layer.weight.copy_(weights[f"{name}.weight"].mu)
                layer.bias.copy_(weights[f"{name}.bias"].mu)
        plain = nn.Sequential(nn.Flatten(), layers["trunk.1"], nn.ReLU(), layers["heads.0"])
        inputs = [task.prepare(x) for x, _ in examples.in_order(1000, torch.device("cpu"))]
        fisher = mean_powers(plain, dict(plain.named_parameters()), inputs, class_roots, 2)
        return {
            name: torch.cat([fisher[f"{place}.{own}"].flatten() for own in ("weight", "bias")])
            for name, place in (("trunk.1", 1), ("heads.0", 3))
        }


def curvatures(recipe, benchmark, epochs, hidden=400):
    """Learn the first task at a recipe's settings; return who has watched it, and the comparison at the task's end."""
    settings = json.loads((files("ucb") / "recipes" / recipe / "ucb-ng.json").read_text())["settings"]
    training = {"epochs": epochs, "eval_samples": 1}
    job = Job(benchmark, "ucb-ng", tasks=1, net_options={"hidden": [hidden]}, training=training, settings=settings)
    watcher = Curvatures()
    run = watcher.run = job.run(observer=watcher)
    kept = {g.mu: g.sigma.detach().square().reciprocal() for _, g in gaussians(run.method.net)}  # the prior's precision
    run.learn()
    state, size = run.method.optimizer.state, len(run.stream.tasks[0].train)
    learnt = watcher.compare(lambda mu: (state[mu]["precision"] - kept[mu]) * settings["temperature"] / size)
    return watcher, learnt


def test_sigmas_curvature_is_the_fisher_of_digits_that_were_held_out():
    """Quick: two epochs of a small net on two digits."""
    watched, kept = curvatures("5split-mnist", "mnist-5split", 2, hidden=50)
    for rank, ratio, _ in [*watched.ends[2].values(), *kept.values()]:
        assert rank >= 0.8
        assert 0.75 <= ratio <= 1.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "benchmark"),
    [
        ("5split-mnist", "mnist-5split"),
        ("5split-mnist-uniform", "mnist-5split"),
        ("2split-mnist", "mnist-2split"),
        ("2split-mnist-uniform", "mnist-2split"),
        ("permuted-mnist", "mnist-permuted"),
        ("permuted-mnist-uniform", "mnist-permuted"),
        ("permuted-mnist-0.1m", "mnist-permuted"),
        ("permuted-mnist-0.1m-uniform", "mnist-permuted"),
    ],
)
def test_sigma_tells_the_truth_at_the_settings_of_the_recipes(recipe, benchmark):
    """On 784-400, in every layer: the curvature that noise begins an epoch with, and what is kept at the task's end.

    Within an epoch single batches change the Fisher of a net that is nearly sure by half, which a running mean cannot
    follow: there it is right in the middle of all places, and within twice of the Fisher at each.
    """
    watched, kept = curvatures(recipe, benchmark, 8)
    assert sorted(watched.ends) == [2, 3, 4, 5, 6, 7, 8]
    for compared in (*watched.ends.values(), kept):
        for rank, ratio, lost in compared.values():
            assert rank >= 0.8
            assert 0.75 <= ratio <= 1.25
            assert lost < 0.1
    for name in kept:
        ranks, ratios, _ = zip(*(compared[name] for compared in watched.middles), strict=True)
        assert min(ranks) >= 0.8
        assert 0.75 <= statistics.median(ratios) <= 1.25
        assert 0.5 <= min(ratios) <= max(ratios) <= 2.0
