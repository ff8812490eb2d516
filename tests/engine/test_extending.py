"""What a run can be told from outside: where its state is kept, where it starts, and which tasks are evaluated."""

import dataclasses
import math

import pytest

from tests.engine.runs import figures, small_run, weights
from ucb.data.streams.tasks import Examples
from ucb.engine import InterruptedRunError, Observer, Run
from ucb.engine.checkpoint import Progress, pack, unpack
from ucb.testing import tiny_stream


class Memory:
    """Keeps a state in memory; inside a task it wants one only when it is open."""

    path = "memory"

    def __init__(self):
        self.kept, self.is_due, self.saved = None, True, 0

    def save(self, state):
        self.kept, self.saved = pack(state), self.saved + 1

    def load(self):
        return None if self.kept is None else unpack(self.kept)


class CutAt(Observer):
    def __init__(self, *place):
        self.place = place

    def batch_learnt(self, task, epoch, batch, batches):
        if (task, epoch, batch) == self.place:
            raise InterruptedRunError("enough")


def run_with(memory, observer=None):
    run = small_run("ucb", observer=observer, epochs=3)
    run.checkpoints = memory
    return run


def test_a_run_goes_on_from_wherever_its_state_is_kept():
    whole, memory = small_run("ucb", epochs=3), Memory()
    whole.learn()
    assert not run_with(memory).resume(), "nothing is there yet"
    with pytest.raises(InterruptedRunError):
        run_with(memory, CutAt(1, 1, 5)).learn()
    again = run_with(memory)
    assert again.resume()
    assert (again.progress.task, again.progress.epoch) == (1, 1)
    again.learn()
    assert figures(again) == figures(whole)
    assert all((value == weights(whole)[name]).all() for name, value in weights(again).items())


def test_inside_a_task_only_what_is_due_is_saved():
    memory = Memory()
    memory.is_due = False
    run_with(memory).learn()
    assert memory.saved == 3, "after each task"


def test_a_state_of_something_else_names_its_place():
    memory = Memory()
    memory.save({"identity": {}})
    with pytest.raises(OSError, match="memory holds no state of this run"):
        run_with(memory).resume()


class Gone(Examples):
    def __len__(self):
        return 0

    def batches(self, order, batch_size, device):
        raise AssertionError("these data are gone")


def test_a_run_may_start_later_where_earlier_data_are_gone():
    stream, gone = tiny_stream(), Gone()
    first, second, last = stream.tasks
    empty = [dataclasses.replace(task, train=gone, validation=gone, test=gone) for task in (first, second)]
    late = dataclasses.replace(stream, tasks=(*empty, last))
    like = small_run("ucb")
    run = Run(
        late,
        like.method,
        like.training,
        seed=0,
        device=like.device,
        start=Progress(task=2, at_start=[math.nan]),
        evaluated=[2],
    )
    run.learn_task()
    assert run.progress.task == 3
    assert [len(row) for row in run.progress.rows] == [1]
    assert run.progress.own[0][0] > 60
