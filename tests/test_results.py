"""Committed figures are what the present recipes gave, and every method is within reach of the paper's table."""

import json
from pathlib import Path

import pytest

from ucb.engine import Schedule
from ucb.engine.config import recipe_for, replace_fields
from ucb.methods import known_methods
from ucb.storage import rename_old_keys

RESULTS = Path(__file__).parent.parent / "results"
LEAST = {
    **dict.fromkeys(("ucb", "ucb-ng", "hat", "ucb-p", "ucb-p-ng", "pnn", "packnet"), 99.0),
    "vcl": 98.0,
    **dict.fromkeys(("ewc", "si", "mas", "lwf"), 95.7),
    **dict.fromkeys(("imm-mean", "imm-mode"), 88.5),
    **dict.fromkeys(("ord-fe", "bbb-fe"), 97.0),
    **dict.fromkeys(("ord-jt", "bbb-jt"), 99.5),
}


def result(benchmark, method):
    return json.loads((RESULTS / benchmark / f"{method}-seed0.json").read_text())


@pytest.mark.parametrize("method", known_methods())
def test_every_method_was_measured_with_its_recipe_and_reaches_its_bar(method):
    found, recipe = result("mnist-5split", method), recipe_for("mnist-5split", method)
    assert recipe.settings, "every method has a recipe"
    assert rename_old_keys(found["config"]["settings"]) == recipe.settings
    assert found["config"]["training"] == recipe.training
    assert found["acc"] >= LEAST.get(method, 0.0)
    assert len(found["accuracy_matrix"]) == 5


def test_the_main_run_meets_its_bar():
    """At a temperature above 0, UCB learns five tasks with hardly any forgetting."""
    found = result("mnist-5split", "ucb")
    assert found["acc"] >= 99.5
    assert found["bwt"] >= -0.1
    assert found["config"]["settings"]["temperature"] > 0


@pytest.mark.parametrize("method", [name for name in known_methods() if name != "uniform-lr"])
def test_recipes_come_from_trials_that_are_kept(method):
    """The chosen settings are among the trials, and within one standard error of the best of them."""
    recipe = recipe_for("mnist-5split", method)
    which = "mnist-5split-all-tasks" if "all tasks" in recipe.found else "mnist-5split"
    record = json.loads((RESULTS / "tuning" / which / f"{method}.json").read_text())
    trials = [trial for trial in record["trials"] if trial["score"] is not None]
    (chosen,) = [trial for trial in trials if rename_old_keys(trial["settings"]) == recipe.settings]
    best = min(trials, key=lambda trial: trial["score"])
    assert chosen["score"] <= best["score"] + best["error"]


def test_every_kept_trial_learnt_something():
    """A rate below the least one would end a task before its first epoch."""
    records = sorted((RESULTS / "tuning").glob("*/*.json"))
    assert len(records) > 50
    for path in records:
        kind = known_methods()[path.stem]
        for trial in json.loads(path.read_text())["trials"]:
            Schedule().refuse_rate(replace_fields(kind.settings_type(), trial["settings"]).lr)
