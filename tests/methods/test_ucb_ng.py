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
from ucb.engine.events import Observer
from ucb.methods import TaskInfo
from ucb.methods.per_example import mean_powers
from ucb.methods.ucb_ng import thinned


def test_every_held_out_input_has_its_turn():
    run = small_run("ucb-ng", samples=2)
    run._begin(run._task(0))
    method, data = run.method, run._data_of(run._task(0))
    method.look(data)
    held, rows, seen = len(method.held_out), method._rows(32), []
    assert held == len(run.stream.tasks[0].validation)
    for _ in range(3 * held):
        seen += method._next(rows, held).tolist()
        method.optimizer.state[method.optimizer.learning_means()[0]]["seen"] += 1
    assert torch.bincount(torch.tensor(seen), minlength=held).tolist() == [3 * rows] * held


def test_curvature_comes_from_held_out_inputs_and_in_a_stream_from_those_at_hand():
    run = small_run("ucb-ng")
    run._begin(run._task(0))
    method, x, y = run.method, torch.randn(32, 8), torch.zeros(32, dtype=torch.long)
    looked, see = [], method.optimizer.see

    def noting(objective, net, x):
        looked.append(x)
        return see(objective, net, x)

    method.optimizer.see = noting
    method.add_gradients(x, y)
    assert torch.equal(looked[0], x)
    method.look(run._data_of(run._task(0)))
    method.add_gradients(x, y)
    held = {tuple(row.tolist()) for row in method.held_out}
    assert {tuple(row.tolist()) for row in looked[1]} <= held


def test_what_a_task_leaves_depends_on_its_last_means_alone():
    """The running curvature may have been gathered in two epochs or in eight, and on another way."""
    kept = []
    for noise in (1.0, 100.0):
        run = small_run("ucb-ng")
        run._begin(run._task(0))
        for group in run.method.optimizer.gaussian_groups():
            run.method.optimizer.state[group["params"][0]]["curvature"].fill_(noise)
        run.method.end_task(run._data_of(run._task(0)))
        groups = run.method.optimizer.gaussian_groups()
        kept.append([run.method.optimizer.state[group["params"][0]]["precision"] for group in groups])
    assert all(torch.equal(a, b) for a, b in zip(*kept, strict=True))


def test_other_tasks_outputs_take_no_part_in_the_curvature():
    run = small_run("ucb-ng", own_classes=True)
    method = run.method
    method.begin_task(TaskInfo(0, 300, 0, range(1)))
    assert method.objective.curvature_roots(torch.randn(5, 2)).shape == (5, 0), "one class alone is always right"


def test_too_many_held_out_inputs_are_thinned_evenly():
    rows = torch.arange(1000.0).reshape(-1, 1)
    for size in (1, 7, 64, 1000):
        kept = thinned(rows.split(size), 100).flatten().long()
        assert 50 <= len(kept) <= 100
        assert len(set(kept.diff().tolist())) == 1
    assert torch.equal(thinned(rows.split(64), 1000), rows)
    assert len(thinned(rows[:1], 0)) == 1


def spearman(a, b):
    ranks = torch.stack([a.argsort().argsort(), b.argsort().argsort()]).double()
    return float(torch.corrcoef(ranks)[0, 1])


class Curvatures(Observer):
    """Compares the curvature with the exact Fisher of held-out examples and, apart from these, of test examples.

    A layer's weights and biases are ranked together. Of digits that a net is sure of, few make up the Fisher: that of
    two sets differs by a third, and their ranks by as much. So test examples must be ranked as well as the exact Fisher
    of the held-out ones ranks them.
    """

    def __init__(self, at):
        self.at, self.found, self.run = at, {}, None

    def epoch_ended(self, epoch):
        if epoch.epoch + 1 in self.at:
            state = self.run.method.optimizer.state
            self.found[epoch.epoch + 1] = self.compare(lambda mu: state[mu]["curvature"])

    def compare(self, curvature_of):
        """Of each layer: the ranks' correlation and the median ratio, and the correlation lost in test examples."""
        task = self.run.stream.tasks[0]
        weights = dict(gaussians(self.run.method.net))
        compared = {}
        held_out, test = self.fishers(task.validation), self.fishers(task.test)
        for name, exact in held_out.items():
            unseen = test[name]
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


def curvatures(recipe, benchmark, epochs, at, hidden=400):
    """Learn the first task at a recipe's settings; return the comparisons by epoch, and at the task's end."""
    settings = json.loads((files("ucb") / "recipes" / recipe / "ucb-ng.json").read_text())["settings"]
    training = {"epochs": epochs, "eval_samples": 1}
    job = Job(benchmark, "ucb-ng", tasks=1, net_options={"hidden": [hidden]}, training=training, settings=settings)
    watcher = Curvatures(at)
    run = watcher.run = job.run(observer=watcher)
    kept = {g.mu: g.sigma.detach().square().reciprocal() for _, g in gaussians(run.method.net)}  # the prior's precision
    run.learn()
    state, size = run.method.optimizer.state, len(run.stream.tasks[0].train)
    learnt = watcher.compare(lambda mu: (state[mu]["precision"] - kept[mu]) * settings["temperature"] / size)
    return watcher.found, learnt


def test_sigmas_curvature_is_the_fisher_of_digits_that_were_held_out():
    """Quick: two epochs of a small net on two digits."""
    by_epoch, kept = curvatures("5split-mnist", "mnist-5split", 2, (2,), hidden=50)
    for rank, _, _ in by_epoch[2].values():
        assert rank >= 0.8
    for rank, ratio, _ in kept.values():
        assert rank >= 0.8
        assert 0.75 <= ratio <= 1.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "benchmark", "epochs"),
    [
        ("5split-mnist", "mnist-5split", 8),
        ("5split-mnist-uniform", "mnist-5split", 8),
        ("2split-mnist", "mnist-2split", 8),
        ("2split-mnist-uniform", "mnist-2split", 8),
        ("permuted-mnist", "mnist-permuted", 8),
        ("permuted-mnist-uniform", "mnist-permuted", 8),
        ("permuted-mnist-0.1m", "mnist-permuted", 8),
        ("permuted-mnist-0.1m-uniform", "mnist-permuted", 8),
    ],
)
def test_sigma_tells_the_truth_at_the_settings_of_the_recipes(recipe, benchmark, epochs):
    """On 784-400, in every layer, the noise's curvature from the second epoch on, and what is kept at the task's end.

    Its size follows a Fisher that goes up and down from epoch to epoch: within a quarter of it in their middle, and
    within twice of it in each.
    """
    by_epoch, kept = curvatures(recipe, benchmark, epochs, (2, 3, 5, 8))
    for name, (rank, ratio, lost) in kept.items():
        assert rank >= 0.8
        assert 0.75 <= ratio <= 1.25
        assert lost < 0.1
        ranks, ratios, losses = zip(*(compared[name] for compared in by_epoch.values()), strict=True)
        assert min(ranks) >= 0.8
        assert max(losses) < 0.1
        assert 0.75 <= statistics.median(ratios) <= 1.25
        assert 0.5 <= min(ratios) <= max(ratios) <= 2.0
