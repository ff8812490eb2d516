"""Results of earlier settings are never shown as those of the present ones."""

import csv
import io
import json

import pytest

from tests.experiments.reproduce.made_up import keep, row, tiny
from ucb.engine.config import Recipe
from ucb.experiments.reproduce import definitions
from ucb.experiments.reproduce.compare import FORMATS, compare_table
from ucb.experiments.reproduce.definitions import table_named

MIXED = "the seeds were run with different settings: no verdict"


@pytest.fixture
def table():
    return tiny(row("ucb", "UCB", lr=0.5), row("imm-mean", "IMM", more={"better_of": "IMM"}), row("ucb-ng"))


def line(table, results, name="ucb"):
    return {line.name: line for line in compare_table(table, results)}[name]


def test_runs_with_other_settings_than_now_have_a_note_that_names_them(table, tmp_path):
    for seed in range(2):
        keep(tmp_path, table, "ucb", seed, 99.63, settings={"lr": 0.25}, tasks=3)
    found = line(table, tmp_path)
    assert found.notes == ("its runs had other settings than now: lr was 0.25 and is 0.5; tasks was 3 and is 2",)
    assert found.verdict == "within", "all seeds had the same settings"
    assert found.other_settings


def test_runs_with_the_settings_of_now_have_none(table, tmp_path):
    keep(tmp_path, table, "ucb", 0, 99.63, device="cuda")
    found = line(table, tmp_path)
    assert (found.notes, found.verdict, found.other_settings) == ((), "within", False)


@pytest.mark.parametrize("second", [0.5, 0.125], ids=["one of now", "none of now"])
def test_a_mixture_of_settings_has_no_verdict(table, tmp_path, second):
    keep(tmp_path, table, "ucb", 0, 99.63, settings={"lr": 0.25})
    keep(tmp_path, table, "ucb", 1, 99.63, settings={"lr": second})
    keep(tmp_path, table, "ucb", 2, 99.63, settings={"lr": 0.25})
    found = line(table, tmp_path)
    assert found.verdict == ""
    assert found.notes[:2] == (MIXED, "the runs of seed 0, 2 had other settings than now: lr was 0.25 and is 0.5")
    others = ["the runs of seed 1 had other settings than now: lr was 0.125 and is 0.5"] if second != 0.5 else []
    assert list(found.notes[2:]) == others
    assert found.other_settings


def test_a_choice_that_an_earlier_run_does_not_name_is_no_other_setting(table, tmp_path):
    path = keep(tmp_path, table, "ucb", 0, 99.60)
    keep(tmp_path, table, "ucb", 1, 99.60, apart=False, task_told=False)
    early = json.loads(path.read_text())
    for name in ("apart", "task_told"):
        del early["config"][name]
    path.write_text(json.dumps(early))
    assert line(table, tmp_path).notes == ()
    keep(tmp_path, table, "ucb", 2, 99.60, task_told=True)
    assert MIXED in line(table, tmp_path).notes


def test_a_changed_recipe_shows_in_every_format(table, tmp_path, monkeypatch):
    keep(tmp_path, table, "ucb-ng", 0, 99.63)
    recipe = definitions.recipe_for("mnist-5split", "ucb-ng")
    assert line(table, tmp_path, "ucb-ng").notes == ()
    other = Recipe(recipe.training, recipe.settings | {"lr": 7.0}, "searched again")
    monkeypatch.setattr(definitions, "recipe_for", lambda *_: other)
    (note,) = line(table, tmp_path, "ucb-ng").notes
    assert note == f"its runs had other settings than now: lr was {recipe.settings['lr']} and is 7.0"
    lines = compare_table(table, tmp_path)
    for name in ("text", "md"):
        assert f"(1) {note}\n" in FORMATS[name](table, [lines[-1]])
    assert f"(1) {note}\\par" in FORMATS["tex"](table, [lines[-1]])
    assert next(csv.DictReader(io.StringIO(FORMATS["csv"](table, [lines[-1]]))))["notes"] == note
    (written,) = json.loads(FORMATS["json"](table, [lines[-1]]))["rows"]
    assert (written["notes"], written["other_settings"]) == ([note], True)


def test_runs_that_serve_several_tables_are_compared_with_the_row_that_made_them(tmp_path):
    keep(tmp_path, "2split-mnist", "ucb", 0, 99.1)
    importance = table_named("importance")
    assert line(importance, tmp_path, "ucb-mu-certainty").notes == ()
    keep(tmp_path, "2split-mnist", "ucb", 0, 99.1, settings={"samples": 3})
    (note,) = line(importance, tmp_path, "ucb-mu-certainty").notes
    assert "samples was 3 and is " in note


def test_a_row_without_a_recipe_says_so_once_it_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(definitions, "recipe_for", lambda *_: Recipe())
    table = table_named("5split-mnist")
    assert line(table, tmp_path, "si").notes == ()
    keep(tmp_path, table, "si", 0, 99.0)
    keep(tmp_path, table, "ucb-t0", 0, 99.0)
    assert line(table, tmp_path, "si").notes == ("no recipe: the method's defaults",)
    assert line(table, tmp_path, "ucb-t0").notes == ("no recipe: the method's defaults, but temperature 0.0",)


def test_a_row_with_a_recipe_says_nothing_of_it(tmp_path):
    table = table_named("5split-mnist")
    keep(tmp_path, table, "si", 0, 99.0)
    assert line(table, tmp_path, "si").notes == ()
