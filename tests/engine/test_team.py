"""Runs that take their steps together come out as they do alone, but for the rounding of sums."""

import threading
import time

import pytest
import torch
from torch import nn

from tests.engine.runs import figures, small_run, weights
from tests.streams import tiny_stream
from ucb.engine import DivergedError, InterruptedRunError, Observer, Run, side_by_side
from ucb.engine.side_by_side import each_side_by_side, teams_of
from ucb.engine.stack import Stack, kind_of, tensors_of
from ucb.engine.stacked_steps import StackedSteps
from ucb.engine.team import Call, Team
from ucb.methods import known_methods

STACKED = ["ord-ft", "bbb-ft", "bbb-fe", "ucb", "uniform-lr", "ucb-ng"]


BATCHES = 8
"""Of an epoch of the tiny stream."""


@pytest.fixture
def teams(monkeypatch):
    """Teams on a CPU too; how many runs took each step is noted."""
    monkeypatch.setattr(side_by_side, "TEAMS_ON", ("cpu", "cuda"))
    taken, really = [], Stack.learn
    monkeypatch.setattr(Stack, "learn", lambda self, *args: taken.append(len(self.methods)) or really(self, *args))
    return taken


def learnt(runs):
    each_side_by_side(runs, lambda run: run.learn())
    return runs


def alone(runs):
    for run in runs:
        run.learn()
    return runs


def close(some, others, **tolerance):
    for one, other in zip(some, others, strict=True):
        for (name, a), b in zip(weights(one).items(), weights(other).values(), strict=True):
            torch.testing.assert_close(a, b, msg=lambda m, n=name: f"{n}: {m}", **tolerance)


def flat(nested):
    """All numbers of lists in lists."""
    return torch.tensor([number for each in nested for number in (flat(each) if isinstance(each, list) else [each])])


def seeds(name="ord-ft", count=3, **settings):
    return [small_run(name, seed=seed, **settings) for seed in range(count)]


def test_seeds_together_come_out_as_each_alone(teams):
    first, second = alone(seeds(epochs=4)), learnt(seeds(epochs=4))
    assert set(teams) == {3}
    assert len(teams) == first[0].at.steps, "every step was taken by all three at once"
    close(first, second)
    for one, other in zip(first, second, strict=True):
        for found, wanted in zip(figures(one)[:3], figures(other)[:3], strict=True):
            torch.testing.assert_close(flat(found), flat(wanted), rtol=1e-4, atol=1e-4)
        assert figures(one)[3:] == figures(other)[3:]
        assert len(other.at.task_seconds) == 3
        assert (one.at.steps_together, other.at.steps_together) == (0, one.at.steps)
    assert all(run.team is None for run in second)


def test_each_run_keeps_its_own_rate_and_its_own_number_of_epochs(teams):
    """With little patience runs drop their rates, and end their tasks, at different epochs."""
    rates = [8.0, 2.0, 0.05]
    made = [[small_run("ord-ft", seed=i, lr=lr, epochs=25) for i, lr in enumerate(rates)] for _ in range(2)]
    first, second = alone(made[0]), learnt(made[1])
    used = [run.at.epochs_used for run in second]
    assert used == [run.at.epochs_used for run in first]
    assert len({tuple(each) for each in used}) > 1, "nothing was tested"
    assert {2, 3} <= set(teams)
    close(first, second, rtol=1e-4, atol=1e-5)


def test_a_run_that_diverges_leaves_the_others_to_themselves(teams):
    good, bad = seeds(count=2, epochs=3), small_run("ord-ft", seed=5, lr=1e9, epochs=3)
    with pytest.raises(DivergedError):
        learnt([good[0], bad, good[1]])
    assert bad.at.task == 0
    assert {2, 3} <= set(teams)
    close(alone(seeds(count=2, epochs=3)), good)


def test_a_last_batch_and_several_pieces_are_whole(teams, monkeypatch):
    monkeypatch.setattr("ucb.engine.team.PIECE", 3)
    looks = []
    monkeypatch.setattr(
        StackedSteps,
        "hand_over",
        lambda self, run, first, end, really=StackedSteps.hand_over: (
            looks.append(end - first) or really(self, run, first, end)
        ),
    )
    first, second = alone(seeds()), learnt(seeds())
    close(first, second)
    assert set(looks) == {3, first[0].at.steps // 6 % 3}, "pieces of three batches, and what is left"
    assert [run.at.steps for run in first] == [run.at.steps for run in second]


class StopAt(Observer):
    def __init__(self, runs):
        self.runs = runs

    def batch_learnt(self, task, epoch, batch, batches):
        if (task, epoch, batch) == (1, 1, 4):
            for run in self.runs:
                run.stopping = True


def test_runs_that_are_stopped_together_go_on_together(teams, tmp_path, monkeypatch):
    monkeypatch.setattr("ucb.engine.team.PIECE", 3)
    for seed in range(3):
        (tmp_path / str(seed)).mkdir()
    cut = [small_run("ord-ft", tmp_path / str(seed), seed=seed, epochs=3) for seed in range(3)]
    for run in cut:
        run.observer = StopAt(cut)
    with pytest.raises(InterruptedRunError):
        learnt(cut)
    assert all((run.at.task, run.at.epoch, run.at.batch % 3) == (1, 1, 0) for run in cut), "they stop between pieces"
    again = [small_run("ord-ft", tmp_path / str(seed), seed=seed, epochs=3) for seed in range(3)]
    for run in again:
        assert run.resume()
    learnt(again)
    close(alone(seeds(epochs=3)), again)


class StopAfterTask(Observer):
    """Stops a run in the last epoch of its first task; what is told of a task's end is noted."""

    def __init__(self):
        self.run, self.ended = None, []

    def epoch_ended(self, epoch):
        self.run.stopping = (epoch.task, epoch.epoch) == (0, 2)

    def task_ended(self, task, row):
        self.ended.append((task, len(row)))


def test_a_run_that_is_stopped_after_a_task_has_judged_it(teams, tmp_path):
    def made():
        return [small_run("ord-ft", tmp_path / str(seed), seed=seed, epochs=3) for seed in range(3)]

    cut = made()
    for run in cut:
        run.folder.mkdir()
        run.observer = StopAfterTask()
        run.observer.run = run
    with pytest.raises(InterruptedRunError, match="after task 1"):
        learnt(cut)
    assert [run.observer.ended for run in cut] == [[(0, 1)]] * 3
    again = made()
    for run in again:
        assert run.resume()
        assert (run.at.task, len(run.at.rows)) == (1, 1)
    learnt(again)
    close(alone(seeds(epochs=3)), again)


def test_what_is_put_off_is_done_while_the_next_steps_are_taken(teams, monkeypatch):
    """A task's end is told, with the figures that its weights have, after steps of the next task were taken."""
    taken, told = teams, []

    class Ear(Observer):
        def task_ended(self, task, row):
            told.append((task, len(taken), row[-1].accuracy))

    runs = [small_run("ord-ft", seed=seed, observer=Ear()) for seed in range(3)]
    learnt(runs)
    a_task = len(taken) // 3
    assert {(task, steps > (task + 1) * a_task) for task, steps, _ in told} == {(0, True), (1, True), (2, False)}
    own = {(task, run.matrix.after[task][-1]) for run in alone(seeds()) for task in range(3)}
    assert {(task, accuracy) for task, _, accuracy in told} == own


def test_steps_that_cannot_be_taken_together_are_taken_apart_to_the_last_bit(teams, monkeypatch):
    def fails(self, *args):
        raise RuntimeError("no room\nfor all")

    monkeypatch.setattr(Stack, "learn", fails)

    told = []

    class Ear(Observer):
        def noted(self, sentence):
            told.append(sentence)

    second = [small_run("ord-ft", seed=seed, observer=Ear()) for seed in range(3)]
    close(alone(seeds()), learnt(second), rtol=0, atol=0)
    assert told == ["runs side by side take their steps apart: no room"] * 3


def failing(monkeypatch, step, error):
    """Let a step of the stack fail."""
    taken, really = [], Stack.learn

    def fails(self, *args):
        taken.append(None)
        if len(taken) == step:
            raise error
        return really(self, *args)

    monkeypatch.setattr(Stack, "learn", fails)


@pytest.mark.parametrize("error", [RuntimeError("the chip is gone"), ValueError("too many counters")])
def test_a_failure_inside_a_task_is_everybodys(teams, monkeypatch, error, tmp_path):
    """And what was known before it is kept: the task before has been judged."""
    failing(monkeypatch, 3 * BATCHES + 3, error)
    runs, errors = seeds(), []
    for run in runs:
        run.folder = tmp_path / str(run.seed)
        run.folder.mkdir()

    def learn(run):
        try:
            run.learn()
        except (RuntimeError, ValueError) as raised:
            errors.append(str(raised))

    each_side_by_side(runs, learn)
    assert runs[0].at.steps == 3 * BATCHES
    assert errors == [str(error)] * 3
    for run in runs:
        assert (run.at.task, len(run.at.rows)) == (1, 1)
        assert small_run("ord-ft", run.folder, seed=run.seed).resume()


def test_a_failure_at_the_first_steps_of_a_later_task_sends_the_runs_apart(teams, monkeypatch):
    failing(monkeypatch, 2 * BATCHES + 2, MemoryError("no room"))
    second = seeds()
    close(alone(seeds()), learnt(second))
    assert [run.at.steps_together for run in second] == [2 * BATCHES] * 3


def test_a_team_saves_inside_a_task_though_a_piece_is_an_epoch(teams, monkeypatch, tmp_path):
    saved = []
    monkeypatch.setattr(Run, "save", lambda self: saved.append((self.seed, self.at.task, self.at.epoch, self.at.batch)))
    learnt([small_run("ord-ft", tmp_path, seed=seed, epochs=3, checkpoint_every=1) for seed in range(2)])
    inside = {where[1:] for where in saved if where[3] > 0}
    assert inside == {(task, epoch, BATCHES) for task in range(3) for epoch in range(3)}


def test_a_run_that_waits_long_does_not_keep_its_judgement_back(teams, monkeypatch):
    """One run ends its first task early, and waits for the other to end it too."""
    monkeypatch.setattr("ucb.engine.team.PATIENCE", 0.01)
    told = []

    class Ear(Observer):
        def __init__(self, name):
            self.name = name

        def task_ended(self, task, row):
            told.append((self.name, task))

        def epoch_ended(self, epoch):
            told.append((self.name, "epoch", epoch.task))
            time.sleep(0.05 if self.name == "slow" else 0)

    fast = small_run("ord-ft", lr=8.0, epochs=25, observer=Ear("fast"))
    slow = small_run("ord-ft", lr=0.05, epochs=25, observer=Ear("slow"))
    learnt([fast, slow])
    assert fast.at.epochs_used[0] < slow.at.epochs_used[0], "nothing was tested"
    last = max(i for i, what in enumerate(told) if what == ("slow", "epoch", 0))
    assert told.index(("fast", 0)) < last


def test_a_stack_that_is_not_captured_says_so(teams):
    told = []

    class Ear(Observer):
        def noted(self, sentence):
            told.append(sentence)

    learnt([small_run("ord-ft", seed=seed, observer=Ear()) for seed in range(2)])
    assert ["not captured as a CUDA graph" in sentence for sentence in told] == [True] * 2, "a CPU has none"


def test_with_a_rate_of_rhos_own_another_rate_is_another_kind():
    for name in ("ucb", "uniform-lr", "bbb-ft"):
        free = [small_run(name, **settings).method.free_settings for settings in ({}, {"rho_lr": 0.01})]
        assert ["lr" in each for each in free] == [True, False]


def test_runs_that_may_or_need_learn_apart_do_so(teams):
    for runs in (seeds(together=False), seeds(graphs=False), seeds("ewc")):
        learnt(runs)
    assert teams == []
    close(alone(seeds()), learnt(seeds(together=False)), rtol=0, atol=0)


def test_only_runs_of_one_kind_are_a_team(teams):
    runs = [
        *seeds(count=2),
        small_run("ord-ft", lr=0.01),
        small_run("ord-ft", clip=1.0),
        *seeds("ewc"),
        small_run("ucb"),
    ]
    assert [len(team.present) for team in teams_of(runs)] == [3], "another rate is no other kind"
    assert teams_of([small_run("ord-ft"), small_run("ord-ft", epochs=5)]) == []


def test_on_a_cpu_there_are_no_teams():
    assert teams_of(seeds()) == []


def test_which_methods_can_be_stacked():
    method = small_run("ord-ft").method
    assert kind_of(method) is not None
    assert kind_of(small_run("ucb").method) is None, "its kernels are those of a GPU"
    method.net.trunk.append(nn.BatchNorm1d(16))
    assert kind_of(method) is None
    method = small_run("ord-ft").method
    method.net.trunk.append(nn.Conv1d(16, 16, 1))
    assert kind_of(method) is None


def test_tasks_of_different_sizes_are_learnt_apart(teams):
    def runs():
        return [small_run("ord-ft", seed=seed, stream=tiny_stream(size=200 + 50 * (seed > 0))) for seed in range(3)]

    close(alone(runs()), learnt(runs()))
    assert set(teams) <= {2}


def test_a_stack_takes_over_all_that_a_step_reads():
    runs = seeds()
    for run in runs:
        run._begin(run._task(run.at.task))
    stack = Stack([run.method for run in runs], torch.zeros(2, 8))
    for place, run in enumerate(runs):
        for part, tensor in zip(stack.parts[place], tensors_of(run.method), strict=True):
            assert torch.equal(part, tensor)
            part.add_(1)
        stack.hand_over(place)
        assert all(map(torch.equal, stack.parts[place], tensors_of(run.method)))
    assert stack.one.generator is runs[0].method.generator


def test_whoever_is_behind_goes_first():
    runs = seeds()
    team, turns = Team(runs), []
    team.obstacle = "none of this is about stacks"

    def ask(run, places):
        for place in places:
            task = run.stream.tasks[0]
            team.join(Call(run, (place, 0), task, 0, torch.arange(1), 0))
            turns.append((place, runs.index(run)))
        team.leave(run)

    plans = [[0, 0, 0, 1], [0, 1, 1], [0, 0, 1]]
    threads = [threading.Thread(target=ask, args=pair) for pair in zip(runs, plans, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    assert [place for place, _ in turns] == sorted(place for place, _ in turns)


@pytest.mark.gpu
@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("name", STACKED)
def test_on_a_gpu_all_that_can_be_stacked_comes_out_as_alone(name, clip, teams):
    settings = {"device": "cuda", "epochs": 3, "precision": "float32", "clip": clip}
    first, second = alone(seeds(name, **settings)), learnt(seeds(name, **settings))
    assert set(teams) == {3}
    close(first, second, rtol=2e-3, atol=2e-4)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.method.generator.get_state(), other.method.generator.get_state())
        assert one.at.epochs_used == other.at.epochs_used
        assert one.matrix.acc == pytest.approx(other.matrix.acc, abs=0.5)


def test_a_subclass_does_not_inherit_that_it_can_be_stacked():
    class Otherwise(known_methods()["ord-ft"]):
        """Steps in a way of its own."""

    run = small_run("ord-ft")
    assert kind_of(run.method) is not None
    run.method.__class__ = Otherwise
    assert kind_of(run.method) is None


def test_all_methods_that_say_so_are_tried_on_a_gpu():
    assert sorted(STACKED) == [name for name, kind in known_methods().items() if vars(kind).get("stacks")]
