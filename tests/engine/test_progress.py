"""What a checkpoint holds of a run's position and its figures."""

import math

import pytest
import torch

from tests.engine.runs import small_run
from ucb.engine import checkpoint
from ucb.engine.checkpoint import Progress


def packed(state):
    return checkpoint.unpack(checkpoint.pack(state))


@pytest.mark.parametrize("name", ["ucb", "ord-ft", "ucb-p"])
def test_figures_come_back_exactly(name):
    run = small_run(name)
    run.learn_task()
    run.learn_task(old_tasks=False)
    run.progress.losses, run.progress.rate = [math.inf, 0.1], 0.1
    assert Progress.of(packed(run.progress.state())) == run.progress
    state = run.progress.state()
    run.learn()
    again = Progress.of(packed(state))
    assert (again.task, len(again.rows), len(again.kernels)) == (2, 2, 1), "a state stands by itself"


def test_a_position_that_is_not_known_comes_back_as_such():
    assert math.isnan(Progress.of(packed(Progress().state())).rate)


def at(run, **position):
    state = run.state_dict()
    state["progress"] |= position
    return state


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ({"task": 4}, r"stands at task 5, epoch 1, batch 0, and no run of these 3 tasks is ever there"),
        ({"task": 99}, r"stands at task 100"),
        ({"task": 3, "batch": 1}, r"stands at task 4, epoch 1, batch 1"),
        ({"task": 1, "batch": 9}, r"batch 9"),
        ({"task": 1, "epoch": 99}, r"epoch 100"),
        ({"task": -1}, r"the checkpoint's task must be at least 0, not -1"),
        ({"batch": -1}, r"the checkpoint's batch must be at least 0, not -1"),
        ({"epoch": -2}, r"the checkpoint's epoch must be at least 0, not -2"),
        ({"phase": -1}, r"the checkpoint's phase must be at least 0, not -1"),
    ],
)
def test_a_position_where_no_run_is_is_refused(position, said):
    """A task beyond the last was taken as done: the run had a result that nobody had learnt."""
    run = small_run("ord-ft")
    run.learn_task()
    before = {name: value.clone() for name, value in run.method.net.state_dict().items()}
    other = small_run("ord-ft", seed=1)
    with pytest.raises(ValueError, match=said):
        run.load_state_dict(at(other, **position))
    assert all(torch.equal(before[name], value) for name, value in run.method.net.state_dict().items())
    with pytest.raises(TypeError, match=r"task must be a whole number, not 1\.5"):
        run.load_state_dict(at(other, task=1.5))


def test_a_phase_that_the_method_does_not_have_is_refused():
    run, other = small_run("packnet"), small_run("packnet")
    run.load_state_dict(at(other, phase=3, rate=0.1))
    with pytest.raises(ValueError, match="the checkpoint stands at phase 4 of task 1, and this method's task has 2"):
        run.learn()


@pytest.mark.parametrize("length", [0, 2, 1 << 40])
def test_figures_that_are_not_as_many_as_told_are_refused(length):
    run = small_run("ord-ft")
    run.learn_task()
    for change in ({"lengths": [length]}, {"table": {**run.progress.state()["rows"]["table"], "shape": [length]}}):
        state = run.progress.state()
        state["rows"] |= change
        with pytest.raises(ValueError, match=r"checkpoint has|of the checkpoint"):
            Progress.of(state)
