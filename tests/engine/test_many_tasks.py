"""Streams of many tasks: what a task costs, and what a file holds of it, does not grow with those before it."""

import math
import statistics
import sys
import time
from contextlib import contextmanager

import pytest
import torch

from tests.engine.runs import small_run
from ucb.data.streams import from_arrays
from ucb.engine import Learner, Observer, Schedule, Training
from ucb.nets import mlp
from ucb.testing import tiny_stream

MNIST, TINY = (784, 100), (8, 4)
ROWS = 32


def learner(tasks, sizes=TINY, epochs=2, observer=None):
    """A learner whose tasks are the same few points, under other labels each."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, sizes[0], generator=generator)
    labels = torch.randint(2, (tasks, ROWS), generator=generator)
    stream = from_arrays("many", {f"task {i}": (x, y, x[:8], y[:8]) for i, y in enumerate(labels)})
    training = Training(Schedule(epochs=epochs), batch_size=8, eval_samples=1)
    return Learner(net_for(stream, sizes), stream, "ucb", training=training, observer=observer)


def net_for(stream, sizes=TINY):
    torch.manual_seed(0)
    return mlp(sizes[:1], stream.head_sizes, list(sizes[1:]))


def learn(made, tasks, **options):
    """Learn so many more tasks."""
    first = made.run.progress.task
    for task in made.run.stream.tasks[first : first + tasks]:
        made.learn(task, **options)


@contextmanager
def counting():
    """How many functions were called within the block: unlike a time, it is the same on a busy machine."""
    calls = [0]

    def note(_frame, event, _argument):
        calls[0] += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def calls_of_a_task(made):
    with counting() as calls:
        learn(made, 1, old_tasks=False)
    return calls[0]


def test_a_task_costs_what_earlier_ones_cost():
    made = learner(300)
    learn(made, 10, old_tasks=False)
    early = [calls_of_a_task(made) for _ in range(5)]
    learn(made, 280, old_tasks=False)
    late = [calls_of_a_task(made) for _ in range(5)]
    assert statistics.median(late) < 1.1 * statistics.median(early)


class CountSteps(Observer):
    """Counts calls from one batch of an epoch to the next."""

    def __init__(self):
        self.calls, self.seen = 0, []

    def batch_learnt(self, task, epoch, batch, batches):
        sys.setprofile(None)
        self.seen.append(self.calls)
        self.calls = 0
        if batch < batches:
            sys.setprofile(self.note)

    def note(self, _frame, event, _argument):
        self.calls += event in ("call", "c_call")


@pytest.mark.parametrize("heads", [40, 200])
def test_a_step_costs_what_it_costs_with_few_heads(heads):
    found = []
    for tasks in (2, heads):
        observer = CountSteps()
        learn(learner(tasks, observer=observer), 2, old_tasks=False)
        found.append(observer.seen)
    few, many = found
    assert max(few) > 100
    assert many == few


def beyond_the_heads(made, path):
    """The bytes of a learner's file, without the weights of its heads."""
    made.save(path)
    return path.stat().st_size - sum(p.nbytes for head in made.run.method.net.heads for p in head.parameters())


@pytest.mark.parametrize("judging", [False, True])
def test_a_file_grows_by_its_heads_and_at_most_a_kilobyte_a_task(tmp_path, judging):
    sizes = []
    for tasks in (20, 70):
        made = learner(tasks, epochs=1)
        learn(made, tasks, old_tasks=judging)
        sizes.append(beyond_the_heads(made, tmp_path / "model"))
    assert sizes[1] - sizes[0] < 50 * 1000
    stream = made.run.stream
    again = Learner.load(tmp_path / "model", net_for(stream), stream)
    assert again.run.progress.matrix.after[-1][-1] == made.run.progress.matrix.after[-1][-1]
    assert again.run.progress.sigma == made.run.progress.sigma


def test_tasks_that_are_not_judged_again_are_not_known():
    stream = tiny_stream(tasks=3)
    run, other = small_run("ucb", stream=stream), small_run("ucb", stream=stream)
    whole = [other.learn_task() for _ in range(3)]
    run.learn_task()
    row = run.learn_task(old_tasks=False)
    assert math.isnan(row[0].accuracy)
    assert row[1].figures == whole[1][1].figures, "what is learnt does not depend on who is judged"
    assert [judged.figures for judged in run.learn_task()] == [judged.figures for judged in whole[2]]
    assert run.matrix.after[1][1:] == other.matrix.after[1][1:]
    assert math.isnan(run.matrix.after[1][0])


@pytest.mark.slow
def test_the_thousandth_task_takes_no_longer_than_the_tenth(tmp_path):
    """Two learners take turns, so that whatever else the machine does holds up both."""
    young, old = learner(1000, MNIST), learner(1000, MNIST)
    learn(young, 10, old_tasks=False)
    learn(old, 900, old_tasks=False)
    seconds = {young: [], old: []}
    for _ in range(100):
        for made in (young, old):
            began = time.process_time()
            learn(made, 1, old_tasks=False)
            seconds[made].append(time.process_time() - began)
    assert old.run.progress.task == 1000
    early, late = (statistics.median(each) for each in seconds.values())
    assert late < 1.1 * early, (early, late)
    small = learner(100, MNIST)
    learn(small, 100, old_tasks=False)
    grown = beyond_the_heads(old, tmp_path / "old") - beyond_the_heads(small, tmp_path / "small")
    assert grown < 900 * 1000, grown / 900


@pytest.mark.slow
def test_a_file_with_all_accuracies_grows_by_little_more(tmp_path):
    """The matrix of 200 tasks has 20,100 of them."""
    sizes = []
    for tasks in (20, 200):
        made = learner(tasks, epochs=1)
        learn(made, tasks)
        sizes.append(beyond_the_heads(made, tmp_path / "model"))
    assert sizes[1] - sizes[0] < 180 * 1000, (sizes[1] - sizes[0]) / 180
