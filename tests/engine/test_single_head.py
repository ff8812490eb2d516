"""One head with outputs apart, and with the task told at test time."""

import json

import pytest
import torch

from tests.engine.test_job import StopAt
from ucb import engine
from ucb.bayes import mean_forward
from ucb.data.streams import Scenario
from ucb.engine import InterruptedRunError, Job
from ucb.engine.result import evaluate
from ucb.testing import tiny_stream

TIMES = ("seconds", "task_seconds", "peak_memory_bytes")
BEFORE = {"benchmark", "method", "seed", "tasks", "single_head", "blur", "faces", "data", "net", "device"}


def job(benchmark="mnist-5split", method="ucb", **options):
    """Two tasks with a few units; the loss sees the task's own classes."""
    training = {"epochs": 1, "checkpoint_every": 20, "eval_samples": 1, "batch_size": 256}
    settings = {"own_classes": True, **({"samples": 1} if method == "ucb" else {}), **options.pop("settings", {})}
    options = {"single_head": True, "tasks": 2, "net_options": {"hidden": [8]}, **options}
    return Job(benchmark, method, training=training, settings=settings, **options)


def figures(result):
    return {key: value for key, value in result.items() if key not in TIMES}


@pytest.mark.parametrize(
    ("benchmark", "options", "outputs", "known"),
    [
        ("mnist-permuted", {}, (10,), False),
        ("mnist-permuted", {"apart": True}, (20,), False),
        ("mnist-permuted", {"apart": True, "task_told": True}, (20,), True),
        ("mnist-permuted", {"task_told": True}, (10,), True),
        ("mnist-5split", {"apart": True}, (4,), False),
        ("mnist-5split", {"task_told": True}, (4,), True),
    ],
)
def test_outputs_and_what_is_known(benchmark, options, outputs, known):
    stream = job(benchmark, **options).stream()
    assert stream.head_sizes == outputs
    assert stream.scenario.task_known is known
    assert stream.scenario.heads == "one"


@pytest.mark.parametrize("options", [{"apart": True}, {"task_told": True}])
def test_without_a_single_head_there_is_nothing_to_choose(options):
    with pytest.raises(ValueError, match="are choices for a single head: add --single-head"):
        Job("mnist-permuted", "ucb", **options)
    with pytest.raises(ValueError, match="fade into each other share their outputs, and are never told"):
        Job("mnist-permuted", "ucb", single_head=True, blur=0.5, **options).stream()
    with pytest.raises(TypeError, match="must be a bool, not 'yes'"):
        Job("mnist-permuted", "ucb", single_head=True, **dict.fromkeys(options, "yes"))


@pytest.fixture(scope="module")
def told_and_hidden():
    runs = [job(task_told=told).run() for told in (True, False)]
    for run in runs:
        run.learn()
    return runs


def test_telling_the_task_changes_no_weight(told_and_hidden):
    told, hidden = (run.method.net.state_dict() for run in told_and_hidden)
    assert told.keys() == hidden.keys()
    assert all(torch.equal(told[name], hidden[name]) for name in told)


def test_a_told_task_is_judged_over_its_own_outputs_only(told_and_hidden):
    """Counted from the net's own logits under its mean weights."""
    told, hidden = told_and_hidden
    net = told.method.net.eval()
    for index, first in enumerate((0, 2)):
        task = told.stream.tasks[index]
        x, y = next(task.test.batches(torch.arange(len(task.test)), len(task.test), torch.device("cpu")))
        with torch.no_grad():
            logits = mean_forward(net, task.prepare(x))
        own = logits[:, first : first + 2].argmax(1) == y
        anywhere = logits.argmax(1) == y + first
        assert told.progress.metrics_last[index].mean_weight_accuracy == pytest.approx(100 * float(own.double().mean()))
        assert hidden.progress.metrics_last[index].mean_weight_accuracy == pytest.approx(
            100 * float(anywhere.double().mean())
        )
    assert told.matrix.acc > hidden.matrix.acc + 10, "with the loss over own classes hidden tasks are mixed up"


class RightDigitOfTheFirstTask:
    """Calls every example by its own class, but as the first task's."""

    learns_classes = True

    def __init__(self, labels, outputs):
        self.labels, self.outputs = labels, outputs

    def logits(self, x, asked, samples, generator):
        logits = torch.zeros(len(x), self.outputs)
        rows = torch.arange(len(x))
        if self.outputs > 2:
            logits[rows, 2 + self.labels] = 1.0
        logits[rows, self.labels] = 2.0
        return logits.unsqueeze(0)


@pytest.mark.parametrize(
    ("scenario", "accuracy"),
    [
        (Scenario("one", task_known=False), 0.0),
        (Scenario("one", task_known=True), 100.0),
        (Scenario("one", task_known=False, shared_outputs=True), 100.0),
    ],
)
def test_the_right_class_of_another_task_is_wrong_where_outputs_are_apart(scenario, accuracy):
    stream = tiny_stream(tasks=2, scenario=scenario)
    (outputs,) = stream.head_sizes
    _, labels = next(stream.tasks[1].test.batches(torch.arange(300), 300, torch.device("cpu")))
    judged = evaluate(RightDigitOfTheFirstTask(labels, outputs), stream, 1, 1, torch.device("cpu"), 0)
    assert judged.accuracy == accuracy


@pytest.mark.parametrize("options", [{"apart": True, "task_told": True}, {"apart": True}])
def test_a_cut_run_goes_on_to_the_same_result(tmp_path, options):
    whole = engine.start(job("mnist-permuted", **options), tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        engine.start(job("mnist-permuted", **options), tmp_path / "cut", StopAt(250))
    assert figures(engine.resume(tmp_path / "cut")) == figures(whole)
    assert (whole["generalised_acc"] is None) == ("task_told" in options)
    config = json.loads((tmp_path / "cut" / "config.json").read_text())
    assert {name: config[name] for name in options} == options


def test_a_run_from_before_these_choices_goes_on(tmp_path):
    """Its configuration and its checkpoint name neither."""
    before = job()
    assert set(before.identity()) - {*before.training, *before.settings, "hidden", "version of ucb"} == BEFORE
    with pytest.raises(InterruptedRunError):
        engine.start(before, tmp_path, StopAt(45))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    kept = {name: value for name, value in config.items() if name not in ("apart", "task_told")}
    path.write_text(json.dumps({**kept, "task_told": True}))
    with pytest.raises(ValueError, match="another configuration: task_told was None and is True"):
        engine.resume(tmp_path)
    path.write_text(json.dumps(kept))
    assert engine.resume(tmp_path)["acc"] > 40


def test_a_method_that_must_be_told_serves_one_head_where_it_is():
    with pytest.raises(ValueError, match="hat must be told the task at test time"):
        job(method="hat").run()
    run = job(method="hat", task_told=True, settings={"lr": 0.3}).run()
    run.learn()
    assert run.matrix.acc > 90
