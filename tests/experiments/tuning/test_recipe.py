"""A recipe says what it was chosen from and how much was tried, and does not take the place of another search's."""

import json

import pytest

from ucb.engine.config import Recipe
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import CUT, Search, points_of, values_of


def trial(point, score):
    figures = {"error": 0.0, "learnt": [score], "risen": 0.0, "acc": 90.0, "bwt": 0.0, "seconds": 1.0}
    return {"settings": point, "score": score, **figures}


def filled(tmp_path, points, **options):
    """A record of points whose score is their rate."""
    record = TrialRecord(Search("mnist-5split", **{"method": "ucb"} | options), tmp_path)
    for point in points:
        record.add(trial(point, point["lr"]))
    return record


@pytest.mark.parametrize(("all_tasks", "score"), [(True, "all tasks, seed 0: NLL"), (False, "seed 0: projected NLL")])
def test_a_score_is_called_what_it_is(tmp_path, all_tasks, score):
    record = filled(tmp_path, [{"lr": 0.25}], all_tasks=all_tasks)
    assert f"{score} 0.2500, ACC 90.00" in record.recipe({"lr": (0.25,)}, [{"lr": 0.25}], 6)["found"]


def test_a_recipe_counts_the_trials_of_an_earlier_search_too(tmp_path):
    first = points_of({"lr": (0.1, 0.2), "gain": (1.0, 2.0)})
    then = points_of({"lr": (0.1,), "gain": (1.0,), "pi": (0.25, 0.5, 0.75)})
    recipe = filled(tmp_path, first + then).recipe(values_of(then), then, 6)
    assert recipe["found"].startswith("chosen of 3 on ")
    assert recipe["tried"] == 7
    assert Recipe(**recipe).tried == 7


def test_points_beside_a_product_are_not_counted_as_tried(tmp_path):
    """As after widening: three values each, and five points of nine."""
    points = [*points_of({"lr": (0.1, 0.2), "gain": (1.0, 2.0)}), {"lr": 0.3, "gain": 3.0}]
    recipe = filled(tmp_path, points).recipe(values_of(points), points, 6)
    assert recipe["grid"] == {"lr": (0.1, 0.2, 0.3), "gain": (1.0, 2.0, 3.0)}
    assert recipe["found"].startswith("chosen of 5 on ")
    assert recipe["tried"] == 5


def test_points_that_were_cut_are_tried_and_not_chosen_from(tmp_path):
    points = points_of({"lr": (0.1, 0.2)})
    record = filled(tmp_path, points[:1])
    record.add({"settings": points[1], "score": None, "failed": CUT})
    recipe = record.recipe(values_of(points), points, 6)
    assert recipe["found"].startswith("chosen of 1 on ")
    assert recipe["tried"] == 2


def test_ucbs_recipe_serves_its_control_until_that_is_searched(tmp_path):
    point = {"lr": 0.1}
    record, out = filled(tmp_path, [point]), tmp_path / "recipes"
    recipe = record.recipe({"lr": (0.1,)}, [point], 6)
    ucb, control = (out / "mnist-5split" / f"{name}.json" for name in ("ucb", "uniform-lr"))
    assert record.find_searched_control(out) is None
    assert record.write_recipes(recipe, out) == [ucb, control]
    kept = json.loads(control.read_text())
    assert kept["settings"] == point
    assert kept["found"] == "UCB's own settings, so that nothing but the uncertainty differs"
    assert Recipe(**kept).tried is None
    assert record.write_recipes(recipe | {"settings": {"lr": 0.2}}, out) == [ucb, control]
    assert json.loads(control.read_text())["settings"] == {"lr": 0.2}
    other = filled(tmp_path, [{"lr": 0.3}], method="uniform-lr")
    assert other.write_recipes(other.recipe({"lr": (0.3,)}, [{"lr": 0.3}], 6), out) == [control]
    before = control.read_bytes()
    assert record.write_recipes(recipe, out) == [ucb]
    assert record.find_searched_control(out) == control
    assert control.read_bytes() == before
