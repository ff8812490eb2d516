"""A run takes the user's own recipe before the package's; our tables take the package's alone."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from ucb.cli import app as commands
from ucb.engine import Job
from ucb.engine.config import Recipe, apply_recipe, own_recipe, recipe_for
from ucb.experiments.reproduce.definitions import recipe_of, table_named

SMALL = ["run", "mnist-5split", "--method", "ord-ft", "--tasks", "1", "--hidden", "4", "--set", "eval_samples=1"]
MINE = {"training": {"epochs": 2}, "settings": {"lr": 0.0625}, "found": "by hand", "grid": {}, "tried": 3}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A recipe of the user's own, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "recipes" / "mnist-5split" / "ord-ft.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(MINE))
    return path


def ran(*words):
    answer = CliRunner().invoke(commands.app, [*SMALL, *words])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def config(folder):
    return json.loads((folder / "config.json").read_text())


def test_the_packages_recipes_are_all_readable_whatever_they_leave_out():
    assert recipe_for("mnist-5split", "ewc").tried is None
    assert recipe_for("mnist-5split", "no-method") == Recipe()


def test_a_run_takes_the_users_own_recipe_and_says_so(mine, tmp_path):
    said = ran("--out", "own")
    assert "settings of recipes/mnist-5split/ord-ft.json, your own recipe: by hand\n" in said
    assert config(tmp_path / "own")["settings"] == MINE["settings"]
    assert config(tmp_path / "own")["training"] == {"epochs": 2, "eval_samples": 1}
    ran("--out", "over", "--epochs", "1", "--set", "lr=0.125")
    assert config(tmp_path / "over")["settings"] == {"lr": 0.125}
    assert config(tmp_path / "over")["training"] == {"epochs": 1, "eval_samples": 1}
    mine.unlink()
    assert "your own recipe" not in ran("--out", "package", "--epochs", "1")
    assert config(tmp_path / "package")["settings"] == recipe_for("mnist-5split", "ord-ft").settings


def test_what_tune_has_written_is_what_a_run_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["tune", "mnist-5split", "--method", "ord-ft", "--hidden", "4", "--epochs", "1", "--grid", "lr=0.0625"]
    answer = CliRunner().invoke(commands.app, words)
    assert answer.exit_code == 0, answer.output
    assert "your own recipe: chosen of 1 on held-out data" in ran("--out", "own")
    assert config(tmp_path / "own")["settings"] == {"lr": 0.0625}


def test_tables_keep_to_the_packages_recipes(mine, tmp_path):
    (row,) = [row for row in table_named("5split-mnist").rows if row.name == "ord-ft"]
    before = recipe_of(row)
    for name in (row.recipe, row.benchmark):
        other = tmp_path / "recipes" / name / "ord-ft.json"
        other.parent.mkdir(exist_ok=True)
        other.write_text(json.dumps(MINE))
    assert recipe_of(row) == before != Recipe(**MINE)
    assert recipe_for("mnist-5split", "ord-ft") != Recipe(**MINE)


@pytest.mark.parametrize("text", ["{", "[1]", '{"setings": {}}', '{"settings": 3}', "3"])
def test_a_recipe_that_cannot_be_read_is_named(mine, text):
    mine.write_text(text)
    with pytest.raises(ValueError, match=r"recipes/mnist-5split/ord-ft\.json is no recipe: .*; mend or remove it"):
        own_recipe("mnist-5split", "ord-ft")
    answer = CliRunner().invoke(commands.app, SMALL)
    assert answer.exit_code == 2
    assert "is no recipe" in answer.stderr


def test_what_fades_passes_by_once_whatever_a_recipe_says():
    recipe = Recipe(training={"epochs": 6}, settings={"lr": 0.1})
    order = Job("mnist-permuted", "ord-ft", blur=0.5)
    assert apply_recipe(order, {}, recipe).training == {"epochs": 1}
    assert apply_recipe(dataclasses.replace(order, blur=None), {}, recipe).training == {"epochs": 6}
