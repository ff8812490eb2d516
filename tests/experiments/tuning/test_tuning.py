"""Settings are chosen on held-out data alone, every trial is kept, and the rule is the one that is written down."""

import dataclasses
import json
import os
import signal

import pytest
import torch

from tests.engine.runs import small_run
from ucb.data.streams import Scenario
from ucb.data.streams.tasks import Examples
from ucb.engine import InterruptedRunError, Job, Observer
from ucb.engine.config import field_types
from ucb.experiments.tuning import trials as trial
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import Search, choose, grid_of, points_of, project_nll, refuse_points, score_run
from ucb.experiments.tuning.trials import run_of, search_grid, without_test_data
from ucb.methods import find_method, known_methods

SMALL = {"net_options": {"hidden": [8]}, "epochs": 1}


class Sealed(Examples):
    """Examples that nobody may read."""

    def __init__(self, like):
        self.size = len(like)

    def __len__(self):
        return self.size

    def batches(self, order, batch_size, device):
        raise AssertionError("test data was read while settings were chosen")


@pytest.fixture
def sealed(monkeypatch):
    """Benchmarks whose test data cannot be read."""
    whole = Job.stream

    def stream(job):
        made = whole(job)
        tasks = tuple(dataclasses.replace(task, test=Sealed(task.test)) for task in made.tasks)
        return dataclasses.replace(made, tasks=tasks)

    monkeypatch.setattr(Job, "stream", stream)


def found(lr, score, risen=0.0, error=0.1):
    figures = {"error": error, "learnt": [score], "risen": risen, "acc": 90.0, "bwt": 0.0, "seconds": 1.0}
    return {"settings": {"lr": lr}, "score": score, **figures}


def test_the_grid_is_the_methods_own_and_the_priors_and_what_the_user_says():
    assert grid_of("ucb") == find_method("ucb").settings_type.grid()
    with_prior = grid_of("bbb-ft", prior=True, instead={"lr": ["0.5"], "samples": ["2"]})
    assert len(points_of(with_prior)) == 27 * len(with_prior["temperature"])
    assert with_prior["lr"] == (0.5,)
    assert with_prior["samples"] == (2,)
    assert points_of({"a": (1, 2), "b": (3,)}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("ord-ft", {"prior": True}, "ord-ft has no prior to choose"),
        ("ord-ft", {"instead": {"rate": ["1"]}}, "ord-ft has no setting 'rate'"),
        ("ord-ft", {"instead": {"lr": ["fast"]}}, "lr must be a number"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused(method, options, said):
    with pytest.raises(ValueError, match=said):
        grid_of(method, **options)


@pytest.mark.parametrize("method", known_methods())
def test_all_that_is_tried_unasked_is_allowed(method):
    refuse_points(method, points_of(grid_of(method)))
    if "pi" in field_types(find_method(method).settings_type):
        refuse_points(method, points_of(grid_of(method, prior=True)))


def test_a_value_that_is_named_twice_is_tried_once():
    assert grid_of("ord-ft", instead={"lr": ["0.1", "0.10", "0.3"]}) == {"lr": (0.1, 0.3)}


def test_of_all_within_an_error_of_the_best_the_one_that_forgets_least_is_chosen():
    trials = [found(1, 0.50, risen=0.3), found(2, 0.55, risen=0.1), found(3, 0.70, risen=0.0)]
    assert choose(trials)["settings"] == {"lr": 2}
    assert choose(trials, all_tasks=True)["settings"] == {"lr": 1}
    assert choose([*trials, {"settings": {"lr": 4}, "score": None, "failed": "it diverged"}])["settings"] == {"lr": 2}
    with pytest.raises(ValueError, match="no setting could be learnt with: it diverged"):
        choose([{"settings": {"lr": 4}, "score": None, "failed": "it diverged"}])


def test_the_score_projects_the_forgetting_of_one_step_to_all_tasks():
    assert project_nll([0.2, 0.4], 0.1, 5) == pytest.approx(0.3 + 0.1 * 2)
    assert project_nll([0.2, 0.4], -0.1, 5) == pytest.approx(0.3)
    run = small_run("ord-ft")
    run.learn()
    row = score_run(run, {}, None)
    assert row["score"] == pytest.approx(sum(each.nll for each in run.progress.metrics_last) / 3)


def test_held_out_data_judges_and_test_data_is_never_read(sealed, tmp_path):
    search = Search("mnist-5split", "ord-ft", **SMALL)
    run = run_of(search, {"lr": 0.1})
    assert len(run.stream) == 2
    for task in run.stream.tasks:
        assert task.test is task.validation
    record, heard = TrialRecord(search, tmp_path), []
    search_grid(record, points_of({"lr": (0.1, 0.3)}), 1, heard.append)
    assert [each["settings"]["lr"] for each in heard] == [0.1, 0.3]
    assert all(each["score"] > 0 and each["acc"] > 80 for each in heard)
    again = TrialRecord(search, tmp_path)
    search_grid(again, points_of({"lr": (0.1, 0.3)}), 1, lambda _: pytest.fail("it was tried before"))
    assert json.loads(record.path.read_text())["trials"] == again.trials


def test_a_trial_learns_in_the_scenario_that_is_searched():
    search = Search("mnist-permuted", "ord-ft", single_head=True, apart=True, task_told=True, **SMALL)
    stream = run_of(search, {"lr": 0.1}).stream
    assert stream.head_sizes == (20,)
    assert stream.scenario == Scenario("one", task_known=True)


def test_trials_in_processes_and_one_after_the_other_are_the_same(tmp_path):
    search, points = Search("mnist-5split", "ord-ft", **SMALL), points_of({"lr": (0.1, 0.3)})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for jobs in (1, 2):
            search_grid(TrialRecord(search, tmp_path / str(jobs)), points, jobs, lambda _: None)
    finally:
        torch.set_num_threads(threads)
    one, two = (TrialRecord(search, tmp_path / str(jobs)) for jobs in (1, 2))
    for point in points:
        assert one.find(point)["score"] == two.find(point)["score"]


def test_settings_that_diverge_are_kept_and_never_chosen(tmp_path):
    record = TrialRecord(Search("mnist-5split", "ord-ft", **SMALL), tmp_path)
    search_grid(record, [{"lr": 1e9}, {"lr": 0.1}], 1, lambda _: None)
    assert "the loss became" in record.find({"lr": 1e9})["failed"]
    recipe = record.recipe({"lr": (1e9, 0.1)}, [{"lr": 1e9}, {"lr": 0.1}], 3)
    assert recipe["settings"] == {"lr": 0.1}
    assert recipe["training"] == {"epochs": 3}
    assert recipe["found"].startswith("chosen of 2 on held-out data of the first two tasks, seed 0: projected NLL ")
    assert recipe["found"].endswith("1 epochs a task")
    (path,) = record.write_recipes(recipe, tmp_path / "recipes")
    assert path == tmp_path / "recipes" / "mnist-5split" / "ord-ft.json"


def test_without_test_data_a_stream_judges_by_validation():
    run = small_run("ord-ft")
    stream = without_test_data(run.stream)
    assert [task.test for task in stream.tasks] == [task.validation for task in run.stream.tasks]


def test_ctrl_c_stops_all_trials_that_learn_side_by_side(monkeypatch):
    """Threads do not hear of it: each run is asked to stop after the batch at hand."""
    built, runs = trial.run_of, []

    class Interrupting(Observer):
        def batch_learnt(self, task, epoch, batch, batches):
            if (task, epoch, batch) == (0, 0, 5):
                os.kill(os.getpid(), signal.SIGINT)

    def run_interrupted(search, point):
        runs.append(built(search, point, Interrupting() if not runs else None))
        return runs[-1]

    monkeypatch.setattr(trial, "run_of", run_interrupted)
    monkeypatch.setattr(trial, "find_side_by_side_obstacle", lambda run: None)
    with pytest.raises(InterruptedRunError):
        list(trial.try_together(Search("mnist-5split", "ord-ft", **SMALL), [{"lr": 0.1}, {"lr": 0.3}]))
    assert [len(run.progress.metrics_first) for run in runs] == [0, 0]


def test_trials_that_ended_are_found_though_another_failed(monkeypatch):
    really = trial.try_run

    def tried(search, run, point):
        if point["lr"] == 0.3:
            raise RuntimeError("no memory")
        return really(search, run, point)

    monkeypatch.setattr(trial, "try_run", tried)
    monkeypatch.setattr(trial, "find_side_by_side_obstacle", lambda run: None)
    trials = trial.try_together(Search("mnist-5split", "ord-ft", **SMALL), [{"lr": 0.3}, {"lr": 0.1}])
    assert next(trials)["settings"] == {"lr": 0.1}
    with pytest.raises(RuntimeError, match="no memory"):
        next(trials)


def test_two_processes_add_to_one_search(tmp_path):
    search = Search("mnist-5split", "ord-ft", **SMALL)
    one, other = TrialRecord(search, tmp_path), TrialRecord(search, tmp_path)
    one.add(found(0.1, 1.0))
    other.add(found(0.3, 2.0))
    one.add(found(0.5, 3.0))
    assert [each["settings"]["lr"] for each in TrialRecord(search, tmp_path).trials] == [0.1, 0.3, 0.5]
    assert [each["settings"]["lr"] for each in one.trials] == [0.1, 0.3, 0.5]


def test_what_held_out_data_cannot_judge_has_no_score():
    """Joint training that learns at the end only has no figures after the first of two tasks."""
    search = Search("mnist-5split", "ord-jt", **SMALL)
    point = {"final_only": True, "lr": 0.1}
    (found,) = trial.try_together(search, [point])
    assert found["score"] is None
    assert "no score" in found["failed"]


def test_a_grid_may_use_the_name_that_a_setting_had_before():
    assert grid_of("ucb", instead={"spread": ["0.5"]})["init_std_ratio"] == (0.5,)
