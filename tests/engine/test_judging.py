"""The figures of a run, and how seldom they make a GPU wait."""

import dataclasses
import math

import pytest
import torch

from tests.engine.runs import small_run
from ucb.bayes import gaussians
from ucb.data.streams import Scenario, TensorExamples
from ucb.engine.result import evaluate, result_of, sigma_movement
from ucb.engine.training import TaskBatches
from ucb.methods import EvalContext
from ucb.metrics import ece, nlls, reliability, unpack_right_answers
from ucb.seeds import generator_for
from ucb.testing import tiny_stream

CPU = torch.device("cpu")
HIDDEN = Scenario("one", task_known=False)


@pytest.fixture
def looks(monkeypatch):
    """Every way in which a number leaves a tensor, as it is used."""
    seen = []

    def noting(name, real):
        def look(tensor):
            seen.append(name)
            return real(tensor)

        return look

    for name in ("tolist", "item", "__float__", "__int__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, noting(name, getattr(torch.Tensor, name)))
    return seen


def one_by_one(run, index, seed):
    """What ``evaluate`` finds, each figure by itself."""
    stream, task = run.stream, run.stream.tasks[index]
    outputs, known = stream.outputs_of(index), stream.scenario.task_known
    asked = EvalContext(index if stream.scenario.heads == "many" else 0, index if known else None)
    generator = generator_for("evaluate", seed, index)
    ((x, y),) = task.test.batches(torch.arange(len(task.test)), len(task.test), CPU)
    sampled, mean = (run.method.logits(task.prepare(x), asked, count, generator) for count in (3, 0))
    if known:
        sampled, mean = (logits[..., outputs.start : outputs.stop] for logits in (sampled, mean))
    p, label = sampled.softmax(-1).mean(0), mean.softmax(-1).mean(0).argmax(1)
    target = y if known else y + outputs.start
    losses = nlls(p, target)
    figures = [
        100 * float((p.argmax(1) == target).double().mean()),
        100 * float((label == target).double().mean()),
        float(ece(p, target)),
        float(losses.mean()),
        float(losses.std() / math.sqrt(len(losses))) if len(losses) > 1 else 0.0,
    ]
    return figures, reliability(p, target).tolist()


def with_so_many_tests(stream, size):
    test = TensorExamples(torch.randn(size, 8), torch.randint(2, (size,)))
    return dataclasses.replace(stream, tasks=tuple(dataclasses.replace(task, test=test) for task in stream.tasks))


@pytest.mark.parametrize("size", [300, 1])
@pytest.mark.parametrize("scenario", [None, HIDDEN])
@pytest.mark.parametrize("name", ["ord-ft", "ucb"])
def test_the_figures_are_those_of_each_metric_by_itself(name, scenario, size):
    run = small_run(name, stream=with_so_many_tests(tiny_stream(scenario=scenario), size), epochs=1)
    run.learn_task()
    found = evaluate(run.method, run.stream, 1, 3, CPU, "any")
    assert (found.figures, found.bins) == one_by_one(run, 1, "any")
    assert sum(count for count, _, _ in found.bins) == size


def test_a_judgement_is_read_at_once(looks):
    run = small_run("ord-ft")
    looks.clear()
    run._evaluate(0)
    assert looks == ["tolist", "tolist"], "whether these are probabilities, and the figures"


def test_held_out_data_comes_without_a_look(looks):
    task = tiny_stream().tasks[0]
    looks.clear()
    batches = list(TaskBatches(task, 4, 32, CPU).validation())
    assert looks == []
    assert sum(len(y) for _, y in batches) == len(task.validation)
    assert all(int(y.min()) == 4 for _, y in batches)


def test_logits_that_are_not_numbers_cannot_be_judged():
    run = small_run("ord-ft")
    with torch.no_grad():
        next(run.method.net.parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match="at least 0 and add up to 1"):
        run._evaluate(0)


def moved_one_by_one(start, end):
    ratio = (end / start).sort().values
    varies = start.numel() > 1 and float(start.std()) > 1e-6 * float(start.mean())
    return {
        **{f"ratio_p{p}": float(ratio[round(p / 100 * (len(ratio) - 1))]) for p in (1, 50, 99)},
        "std_log_sigma": float(end.log().std()) if end.numel() > 1 else 0.0,
        "correlation_with_start": float(torch.corrcoef(torch.stack([start, end]))[0, 1]) if varies else None,
    }


def test_how_far_sigma_moved_is_read_at_once(looks):
    run = small_run("ucb-ng", epochs=1)
    run.learn_task()
    weights = dict(gaussians(run.method.net))
    several, one = list(weights)[:2], list(weights)[-1]
    for name in several:  # as if these had begun with random spreads
        run.method.start[name] = torch.rand_like(weights[name].mu.detach()) + 0.5
    last = weights[one]
    last.mu, last.rho = (torch.nn.Parameter(p.detach()[:1].clone()) for p in (last.mu, last.rho))
    looks.clear()
    found = sigma_movement(run.method)
    assert looks == ["tolist", "tolist"], "the figures, and the correlations where the start varied"
    assert [name for name, moved in found.items() if moved["correlation_with_start"] is not None] == several
    for name, gaussian in weights.items():
        end = gaussian.sigma.detach().flatten().double()
        start = torch.as_tensor(run.method.start[name]).double().flatten().expand_as(end)
        assert found[name] == moved_one_by_one(start, end)
    assert found[one]["std_log_sigma"] == 0


@pytest.mark.parametrize("scenario", [None, HIDDEN])
def test_a_result_keeps_which_test_examples_were_right_after_the_last_task(scenario, tmp_path):
    run = small_run("ucb", folder=tmp_path, stream=tiny_stream(scenario=scenario))
    while run.progress.task < len(run.stream):
        run.learn_task()
        assert bool(run.progress.right) == (run.progress.task == len(run.stream)), (
            "before, a checkpoint need not hold them"
        )
    kept = [unpack_right_answers(packed) for packed in result_of(run, {})["right_answers"]]
    assert [len(right) for right in kept] == [len(task.test) for task in run.stream.tasks]
    assert [100 * float(right.double().mean()) for right in kept] == pytest.approx(run.matrix.after[-1])
    for index, right in enumerate(kept):
        assert torch.equal(right, evaluate(run.method, run.stream, index, 3, CPU, (0, len(run.stream) - 1)).right)
    resumed = small_run("ucb", folder=tmp_path, stream=tiny_stream(scenario=scenario))
    assert resumed.resume()
    assert resumed.progress.right == run.progress.right


def test_after_a_task_those_alone_are_looked_at_that_could_move():
    """Heads that rest are as they were: to look at all of them after every task costs the square of the tasks."""
    run = small_run("ucb", epochs=1)
    everything = set(dict(gaussians(run.method.net)))
    known = {}
    for task in range(3):
        run.learn_task()
        known |= run.progress.sigma[task]
        assert known == sigma_movement(run.method), "what is not named has not moved"
    trunk = {name for name in everything if name.startswith("trunk.")}
    assert [set(moved) for moved in run.progress.sigma] == [
        everything,
        trunk | {"heads.1.weight", "heads.1.bias"},
        trunk | {"heads.2.weight", "heads.2.bias"},
    ]
