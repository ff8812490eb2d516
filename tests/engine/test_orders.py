"""Several jobs at once: new ones and those that were cut, and each one's own failure."""

import dataclasses
import json
import os
import signal
import weakref

import pytest
import torch

from tests.engine.runs import small_job, small_run
from ucb import engine
from ucb.engine import DivergedError, InterruptedRunError, Observer, PlannedRun, runner
from ucb.engine.config import Job
from ucb.engine.runner import find_side_by_side_obstacle

SMALL = small_job(epochs=2)


class Cut(Observer):
    """Breaks a run off in its second epoch."""

    def batch_learnt(self, _task, epoch, batch, _batches):
        if epoch == 1 and batch == 30:
            raise InterruptedRunError("enough")


@pytest.fixture
def groups(monkeypatch):
    """As on a GPU, runs learn at the same time; how many did is noted."""
    sizes, really = [], runner.run_side_by_side
    monkeypatch.setattr(runner, "find_side_by_side_obstacle", lambda *_: None)
    monkeypatch.setattr(runner, "run_side_by_side", lambda runs, work: sizes.append(len(runs)) or really(runs, work))
    return sizes


def of_seeds(folder, seeds, observer=None):
    return [PlannedRun(dataclasses.replace(SMALL, seed=seed), folder / str(seed), observer) for seed in seeds]


def figures(found):
    return found["seed"], found["accuracy_matrix"], found["nll"], found["epochs"]


def test_what_was_cut_goes_on_side_by_side_with_what_is_new(tmp_path, groups):
    whole = [figures(found) for found in engine.carry_out_all(of_seeds(tmp_path / "whole", range(3)))]
    with pytest.raises(InterruptedRunError):
        engine.carry_out_all(of_seeds(tmp_path, [0, 1], Cut()))
    groups.clear()
    begun = list[int]()

    class Seen(Observer):
        def epoch_ended(self, epoch):
            begun.append(epoch.epoch)

    found = engine.carry_out_all(of_seeds(tmp_path, range(3), Seen()))
    assert groups == [3]
    assert sorted(begun) == [0, 1, 1, 1], "the first epoch of two of them had been learnt"
    assert [figures(each) for each in found] == whole


def test_each_failure_is_its_own(tmp_path, groups):
    """A damaged folder, a wrong setting, a rate that leads nowhere, a folder in use; the last is carried out."""
    ordered = of_seeds(tmp_path, range(5))
    ordered[0].folder.mkdir()
    (ordered[0].folder / "config.json").write_text("{")
    changes = [{}, {"settings": {"lrr": 1.0}}, {"settings": {"lr": 1e9}}, {}, {}]
    ordered = [
        order._replace(job=dataclasses.replace(order.job, **change))
        for order, change in zip(ordered, changes, strict=True)
    ]
    with runner._hold_folder(ordered[3], is_new=True):
        *failures, found = engine.carry_out_all(ordered)
    said = ["config.json", "no setting 'lrr'", "the loss became", "another process is running"]
    for failure, words in zip(failures, said, strict=True):
        assert words in str(failure)
    assert groups == [2], "those that can begin"
    assert found["seed"] == 4


def test_what_is_done_is_not_run_again(tmp_path, groups):
    (found,) = engine.carry_out_all(of_seeds(tmp_path, [0]))
    again = engine.carry_out_all(of_seeds(tmp_path, [0, 1]))
    assert groups == [1, 1]
    assert again[0] == found == json.loads((tmp_path / "0" / "result.json").read_text())


def done_with(order, result):
    """A folder whose run is done, with this as its result."""
    order.folder.mkdir()
    (order.folder / "config.json").write_text(json.dumps(dataclasses.asdict(order.job)))
    (order.folder / "result.json").write_text(json.dumps(result))


def test_a_result_that_lacks_figures_is_named_and_the_others_are_returned(tmp_path):
    ordered = of_seeds(tmp_path, [0, 1])
    done_with(ordered[0], {})
    done_with(ordered[1], {"seed": 1, "acc": 90.0, "bwt": None, "config": {}})
    failure, found = engine.carry_out_all(ordered)
    path = tmp_path / "0" / "result.json"
    said = f"{path} is damaged: it has no seed and no acc and no bwt and no config; mend or remove it"
    assert str(failure) == said
    assert found["acc"] == 90.0
    with pytest.raises(OSError, match="damaged") as raised:
        engine.resume(path.parent)
    assert str(raised.value) == said


def test_a_figure_that_a_result_lacks_is_the_damage_of_its_file(tmp_path):
    (order,) = of_seeds(tmp_path, [0])
    done_with(order, {"seed": 0, "acc": 90.0, "bwt": None, "config": {}})
    found = engine.resume(order.folder)
    assert found.get("tasks") is None
    with pytest.raises(OSError, match=r"result\.json is damaged: it has no tasks; mend or remove it"):
        found["tasks"]


def test_a_result_that_another_process_left_damaged_is_that_ones_failure(tmp_path, groups, monkeypatch):
    first, second = of_seeds(tmp_path, [0, 1])
    built = Job.run

    def while_another_ends(job, *words):
        if job.seed == 0:
            (first.folder / "result.json").write_text("{}")
        return built(job, *words)

    first.folder.mkdir()
    (first.folder / "config.json").write_text(json.dumps(dataclasses.asdict(first.job)))
    monkeypatch.setattr(Job, "run", while_another_ends)
    failure, found = engine.carry_out_all([first, second])
    assert "result.json is damaged" in str(failure)
    assert found["seed"] == 1


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "letters.txt").write_text("dear")
    (failure,) = engine.carry_out_all(of_seeds(tmp_path, [0]))
    assert "holds something else" in str(failure)
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["letters.txt"]


def test_ctrl_c_after_the_last_batch_begins_nothing_more(tmp_path):
    class Interrupting(Observer):
        def epoch_ended(self, epoch):
            if epoch.epoch == 1:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRunError, match="stopped after task 1"):
        engine.carry_out_all(of_seeds(tmp_path, [0, 1], Interrupting()))
    assert not (tmp_path / "1").exists()
    ordered = of_seeds(tmp_path, [0, 1])
    found, _ = engine.carry_out_all(ordered)
    assert figures(found) == figures(engine.start(ordered[0].job, tmp_path / "whole"))


def test_a_folder_that_another_process_has_begun_meanwhile_is_left_to_it(tmp_path, monkeypatch):
    (order,) = of_seeds(tmp_path, [0])
    built = Job.run

    def while_another_begins(job, *words):
        order.folder.mkdir()
        (order.folder / "config.json").write_text("another's")
        return built(job, *words)

    monkeypatch.setattr(Job, "run", while_another_begins)
    with pytest.raises(FileExistsError, match="holds a run already"):
        engine.start(order.job, order.folder)
    assert (order.folder / "config.json").read_text() == "another's"


def test_a_run_that_failed_is_gone_when_the_next_one_learns(tmp_path, monkeypatch):
    built, runs, alive = Job.run, [], []

    def noted(job, *words):
        run = built(job, *words)
        runs.append(weakref.ref(run))
        return run

    class Failing(Observer):
        def batch_learnt(self, *_):
            raise RuntimeError("no more")

    class Looking(Observer):
        def task_began(self, *_):
            alive.append(sum(run() is not None for run in runs))

    monkeypatch.setattr(Job, "run", noted)
    first, second = of_seeds(tmp_path, [0, 1])
    failure, _ = engine.carry_out_all([first._replace(observer=Failing()), second._replace(observer=Looking())])
    assert str(failure) == "no more"
    assert alive == [1]


def test_runs_of_different_precision_do_not_go_side_by_side():
    one, other = small_run("ord-ft"), small_run("ord-ft", precision="float32")
    for run in (one, other):
        run.device = torch.device("cuda")
    assert find_side_by_side_obstacle(other) is None
    assert "others beside it have tf32" in find_side_by_side_obstacle(other, [one])


def test_weights_that_the_last_step_blew_up_are_told(tmp_path):
    in_one_step = SMALL.training | {"batch_size": 20000, "epochs": 1}
    job = dataclasses.replace(SMALL, training=in_one_step, settings={"lr": 1e30})
    with pytest.raises(DivergedError, match=r"the held-out loss became (nan|inf) in task 1, epoch 1: try"):
        engine.start(job, tmp_path / "run")
