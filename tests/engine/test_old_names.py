"""Configurations, recipes, checkpoints and results of earlier versions are read under the present names."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from tests.engine.runs import figures, small_job, small_run
from tests.experiments.report.results import result
from ucb import engine
from ucb.cli import app as commands
from ucb.engine import InterruptedRunError, Observer
from ucb.engine.checkpoint import FolderCheckpoints
from ucb.engine.config import Job, apply_recipe, own_recipe, parse_values
from ucb.engine.runner import read_job
from ucb.experiments.report.comparison import groups_of
from ucb.experiments.report.results import results_at
from ucb.experiments.reproduce.definitions import differences
from ucb.storage import OLD_NAMES, rename_old_keys


@pytest.fixture
def renamed(monkeypatch):
    """A setting that was called otherwise."""
    monkeypatch.setitem(OLD_NAMES, "pace", "lr")


@pytest.mark.usefixtures("renamed")
def test_names_are_renewed_at_every_depth_and_what_is_gone_is_left_out():
    old = {"pace": 1, "training": {"together": True, "pace": 2, "epochs": 3}, "data": [{"pace": 4}]}
    assert rename_old_keys(old) == {"lr": 1, "training": {"lr": 2, "epochs": 3}, "data": [{"pace": 4}]}
    assert rename_old_keys(["pace"]) == ["pace"]


@pytest.mark.usefixtures("renamed")
def test_words_may_use_an_old_name():
    assert parse_values({"pace": "0.5", "together": "false"}, {"lr": float}) == {"lr": 0.5}
    job = apply_recipe(Job("mnist-5split", "ord-ft"), {"together": "false", "pace": 0.125})
    assert "together" not in job.training
    assert job.settings["lr"] == 0.125


def test_the_command_takes_a_setting_that_is_gone(tmp_path):
    words = ["run", "mnist-5split", "--method", "ord-ft", "--tasks", "1", "--hidden", "4", "--epochs", "1"]
    words += ["--set", "eval_samples=1", "--set", "together=false", "--out", str(tmp_path / "run")]
    answer = CliRunner().invoke(commands.app, words)
    assert answer.exit_code == 0, answer.output
    assert "together" not in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.usefixtures("renamed")
def test_a_recipe_and_a_configuration_with_old_names(tmp_path):
    path = tmp_path / "mnist-5split" / "ord-ft.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"training": {"together": False, "epochs": 2}, "settings": {"pace": 0.5}}))
    recipe = own_recipe("mnist-5split", "ord-ft", tmp_path).recipe
    assert (recipe.training, recipe.settings) == ({"epochs": 2}, {"lr": 0.5})
    old = dataclasses.asdict(small_job())
    old["training"]["together"], old["settings"] = True, {"pace": 0.5}
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert read_job(tmp_path) == dataclasses.replace(small_job(), settings={"lr": 0.5})


class Cut(Observer):
    def batch_learnt(self, task, epoch, batch, batches):
        if (task, epoch, batch) == (1, 1, 4):
            raise InterruptedRunError("enough")


@pytest.mark.usefixtures("renamed")
def test_a_checkpoint_with_old_names_goes_on_to_the_same_figures(tmp_path):
    whole = small_run("ord-ft")
    whole.learn()
    with pytest.raises(InterruptedRunError):
        small_run("ord-ft", tmp_path, observer=Cut()).learn()
    checkpoints = FolderCheckpoints(tmp_path)
    state = checkpoints.load()
    state["identity"] = {"pace": 0.5, "together": True}
    state["progress"]["steps_together"] = 7
    checkpoints.save(state)
    again = small_run("ord-ft", tmp_path)
    again.identity = {"lr": 0.5}
    assert again.resume()
    again.learn()
    assert figures(again) == figures(whole)


def test_a_run_that_was_begun_with_a_setting_that_is_gone_is_resumed(tmp_path):
    job = small_job(epochs=2)
    whole = engine.start(job, tmp_path / "whole")

    class CutHere(Observer):
        def batch_learnt(self, task, epoch, batch, batches):
            if epoch == 1 and batch == 30:
                raise InterruptedRunError("enough")

    with pytest.raises(InterruptedRunError):
        engine.start(dataclasses.replace(job, training=job.training | {"together": False}), tmp_path / "cut", CutHere())
    found = engine.resume(tmp_path / "cut")
    assert found["accuracy_matrix"] == whole["accuracy_matrix"]


@pytest.mark.usefixtures("renamed")
def test_an_old_result_is_the_same_run(tmp_path):
    job = dataclasses.replace(small_job(), settings={"lr": 0.5})
    old = dataclasses.asdict(job)
    old["training"]["together"], old["settings"] = False, {"pace": 0.5}
    assert differences(old, job) == []
    for seed, settings in enumerate(({"lr": 0.5}, {"pace": 0.5, "together": True})):
        run = result("ord-ft", seed, 90)
        run["config"] = run["config"] | {"settings": settings}
        run["steps_together"] = 0
        (tmp_path / f"{seed}.json").write_text(json.dumps(run))
    (group,) = groups_of([found.result for found in results_at([tmp_path])])
    assert [run["seed"] for run in group.runs] == [0, 1]
