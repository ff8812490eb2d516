"""Runs of a made-up table: missing ones are run, cut ones go on, failing ones are said."""

import json
import os
import time
from dataclasses import replace
from functools import partial

import pytest

from tests.experiments.reproduce.made_up import row, tiny
from ucb import engine
from ucb.engine import Observer
from ucb.experiments.reproduce import running
from ucb.experiments.reproduce.planning import plan
from ucb.experiments.reproduce.running import carry_out, in_processes, observe_nothing, side_by_side

TIMES = ("seconds", "task_seconds", "peak_memory_bytes", "device")


def figures(path):
    found = json.loads(path.read_text())
    return {key: value for key, value in found.items() if key not in TIMES}


@pytest.fixture
def planned(tmp_path):
    """How far the runs of a table are, in a folder of this test."""
    return partial(plan, results=tmp_path / "results", runs=tmp_path / "runs")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The tiny table, seed 0, run without a break."""
    folder = tmp_path_factory.mktemp("whole")
    runs = plan(tiny(), [0], results=folder / "results", runs=folder / "runs")
    outcomes = list(carry_out(runs))
    assert [outcome.failure for outcome in outcomes] == ["", ""]
    return {each.row: each.result for each in runs}


class CutError(RuntimeError):
    pass


class Cut(Observer):
    """Breaks a run off in its second task."""

    def epoch_ended(self, epoch):
        if epoch.task == 1:
            raise CutError("cut here")


def cutting_ucb(each):
    return Cut() if each.row == "ucb" else Observer()


def test_results_are_kept_where_they_belong(whole):
    assert [path.name for path in whole.values()] == ["ord-ft-seed0.json", "ucb-seed0.json"]
    for name, path in whole.items():
        assert path.parts[-4:-1] == ("results", "tables", "tiny")
        run = path.parents[3] / "runs" / "tables" / "tiny" / f"{name}-seed0"
        assert path.read_bytes() == (run / "result.json").read_bytes()
        assert figures(path)["config"]["net_options"] == {"hidden": [16]}


def test_a_cut_run_goes_on_to_the_result_of_a_whole_one(planned, whole):
    first = planned(tiny(), [0])
    assert [each.state for each in first] == ["missing", "missing"]
    outcomes = list(carry_out(first, cutting_ucb))
    assert [outcome.failure for outcome in outcomes] == ["", "cut here"]
    second = planned(tiny(), [0])
    assert [each.state for each in second] == ["measured", "cut"]
    begun = []

    class Seen(Observer):
        def task_began(self, task, name):
            begun.append(task)

    (outcome,) = carry_out(second, lambda _: Seen())
    assert begun == [1], "the first task is not learnt again"
    assert outcome.result["acc"] == figures(whole["ucb"])["acc"]
    for each in planned(tiny(), [0]):
        assert each.state == "measured"
        assert figures(each.result) == figures(whole[each.row])
    assert list(carry_out(planned(tiny(), [0]))) == []


def test_a_result_that_was_not_kept_is_kept_without_running_again(planned, whole):
    (each,) = planned(tiny(row("ord-ft")), [0])
    source = whole["ord-ft"].parents[3] / "runs" / "tables" / "tiny" / "ord-ft-seed0"
    each.folder.parent.mkdir(parents=True)
    os.symlink(source, each.folder)
    (each,) = planned(tiny(row("ord-ft")), [0])
    assert each.state == "run, not kept"
    (outcome,) = carry_out([each], lambda _: Cut())
    assert outcome.failure == ""
    assert each.result.read_bytes() == whole["ord-ft"].read_bytes()


def test_a_run_that_diverges_is_said_and_the_others_go_on(planned):
    table = tiny(row("ord-ft", variant="wild", lr=1e6), row("ord-ft"))
    wild, tame = carry_out(planned(table, [0]))
    assert wild.result is None
    assert "the loss became" in wild.failure
    assert tame.result["acc"] > 80
    assert not wild.planned.result.exists()


def test_a_run_that_cannot_start_is_said(planned):
    (outcome,) = carry_out(planned(tiny(row("hat", more={"single_head": True})), [0]))
    assert "must be told the task at test time" in outcome.failure


def test_what_was_run_with_other_settings_is_left_alone(planned):
    list(carry_out(planned(tiny(row("ord-ft")), [0])))
    (each,) = planned(tiny(row("ord-ft", lr=0.01)), [0])
    assert each.state == "other settings"
    (differs,) = each.why
    assert differs.startswith("lr was ")
    assert differs.endswith(" and is 0.01")
    assert not each.to_do
    (again,) = planned(tiny(row("ord-ft")), [0], device="cuda")
    assert again.state == "measured", "the device does not count"


def test_only_some_methods_or_rows(planned):
    table = tiny(row("ord-ft"), row("ord-ft", variant="slow", lr=0.001), row("ucb", samples=1))
    assert [each.row for each in planned(table, [0, 1], only=["ord-ft-slow"])] == ["ord-ft-slow"] * 2
    assert [each.name for each in planned(table, [3], only=["ord-ft"])] == ["ord-ft seed 3", "ord-ft-slow seed 3"]
    with pytest.raises(ValueError, match="no row or method 'ucbb': did you mean ucb"):
        planned(table, [0], only=["ucbb"])


def test_seeds_of_a_row_go_through_the_engine_together(planned, whole, monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "carry_out_all", lambda orders: asked.append(len(orders)) or together(orders))
    table = tiny(row("ucb", "UCB", samples=1))
    outcomes = side_by_side(planned(table, [0, 1]))
    assert asked == [2]
    assert figures(outcomes[0].planned.result) == figures(whole["ucb"])
    assert outcomes[1].result["seed"] == 1


together = engine.carry_out_all


def test_seeds_that_fail_together_each_have_their_sentence(planned):
    outcomes = side_by_side(planned(tiny(row("ord-ft", lr=1e6)), [0, 1]))
    assert [outcome.planned.job.seed for outcome in outcomes] == [0, 1]
    assert all("the loss became" in outcome.failure for outcome in outcomes)


def test_one_seed_that_fails_does_not_take_the_other_with_it(planned, monkeypatch):
    first, second = planned(tiny(row("ord-ft")), [0, 1])
    second = replace(second, job=replace(second.job, settings={"lr": 1e6}))
    outcomes = side_by_side([second, first])
    assert "the loss became" in outcomes[0].failure
    assert outcomes[1].result["acc"] > 80


def test_processes_give_the_results_of_one(planned, whole):
    outcomes = list(carry_out(planned(tiny(), [0]), jobs=2))
    assert {outcome.failure for outcome in outcomes} == {""}
    for outcome in outcomes:
        assert figures(outcome.planned.result) == figures(whole[outcome.planned.row])
        assert outcome.result["device"] == "cpu, 1 thread"


def test_processes_that_are_stopped_save_their_state(planned):
    table = tiny(row("ord-ft"), row("ucb", samples=1, epochs=1000))
    runs = planned(table, [0])
    outcomes = in_processes(runs, observe_nothing, 2)
    assert next(outcomes).planned.row == "ord-ft"
    until = time.monotonic() + 60
    while not (runs[1].folder / "lock").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(1)  # it has begun to learn
    outcomes.close()
    assert [each.state for each in planned(table, [0])] == ["measured", "cut"]
    assert list(runs[1].folder.glob("checkpoint-*")), "the state is saved"


def dying(_):
    os._exit(7)


def test_a_process_that_dies_is_said(planned):
    runs = planned(tiny(), [0])
    assert {outcome.failure for outcome in in_processes(runs, dying, 2)} == {"its process ended with code 7"}


def test_on_a_gpu_so_many_rows_go_side_by_side(planned, monkeypatch):
    asked = []
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr(running, "side_by_side", lambda runs, _: asked.append([each.name for each in runs]) or [])
    rows = [row("ord-ft"), row("ord-ft", variant="slow", lr=0.001), row("ucb", samples=1)]
    list(carry_out(planned(tiny(*rows), [0, 1], device="cuda"), jobs=2))
    assert asked == [
        ["ord-ft seed 0", "ord-ft seed 1", "ord-ft-slow seed 0", "ord-ft-slow seed 1"],
        ["ucb seed 0", "ucb seed 1"],
    ]


def test_a_result_that_cannot_be_kept_does_not_stop_the_others(planned):
    runs = planned(tiny(row("ord-ft")), [0, 1])
    runs[0].result.mkdir(parents=True)
    first, second = side_by_side(runs)
    assert first.result is None
    assert "directory" in first.failure.lower()
    assert second.planned.result.is_file()


def test_what_was_cut_on_another_device_must_be_removed(planned):
    (each,) = planned(tiny(row("ord-ft")), [0])
    list(carry_out([each], lambda _: Cut()))
    (again,) = planned(tiny(row("ord-ft")), [0], device="cuda")
    assert again.state == "other settings"
    assert again.why == ("device was cpu and is cuda",)
    assert again.remove == (each.folder,)
