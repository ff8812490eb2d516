"""Where the best point lies at a grid's edge, the search goes on outside, and stops when it lies inside."""

import math

import pytest
from typer.testing import CliRunner

from ucb.cli import app as commands
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import Search, choose, points_of, values_of
from ucb.experiments.tuning.trials import is_allowed, points_beyond, value_beyond, widen_search


@pytest.mark.parametrize(
    ("value", "values", "outside"),
    [
        (0.01, (0.01, 0.03, 0.1), [0.003]),
        (0.1, (0.01, 0.03, 0.1), [0.3]),
        (0.03, (0.01, 0.03), [0.09]),
        (0.03, (0.01, 0.03, 0.1), []),
        (5.0, (1.0, 2.0, 5.0), [10.0]),
        (500.0, (500.0, 5000.0), [50.0]),
        (1.0, (1.0,), []),
        (0.0, (0.0, 1.0), []),
        (True, (False, True), []),
        ("given", ("given", "learnt"), []),
        (1.0, (0.9, 1.0), []),  # rounded, the next step is this one again
    ],
)
def test_one_step_outside_is_a_factor_with_one_digit(value, values, outside):
    assert value_beyond(value, values) == outside


def test_settings_at_an_edge_go_further_alone_and_together():
    points = points_of({"lr": (0.01, 0.03, 0.1), "strength": (1.0, 10.0), "kind": ("a",)})
    inside = {"lr": 0.03, "strength": 1.0, "kind": "a"}
    assert points_beyond(points, inside) == [inside | {"strength": 0.1}]
    corner = {"lr": 0.1, "strength": 1.0, "kind": "a"}
    new = points_beyond(points, corner)
    assert len(new) == 3
    assert all(each in new for each in (corner | {"lr": 0.3}, corner | {"strength": 0.1}))
    assert corner | {"lr": 0.3, "strength": 0.1} in new


@pytest.mark.parametrize(
    ("method", "point"),
    [("ord-ft", {"lr": 9e-5}), ("ucb", {"pi": 1.0}), ("ucb", {"samples": 0}), ("ord-ft", {"lr": 0.0})],
)
def test_what_no_run_could_learn_with_is_not_tried(method, point):
    assert not is_allowed(method, point)
    assert is_allowed(method, {"lr": 1e-4})


def filled(tmp_path, method, points, score):
    """A record in which all these points have been tried: none is learnt again."""
    record = TrialRecord(Search("mnist-5split", method, all_tasks=True), tmp_path)
    record.trials = [{"settings": point, "score": score(point), "error": 0.0, "acc": 90.0} for point in points]
    return record


def test_the_search_walks_to_where_the_best_lies_inside(tmp_path):
    """A bowl around lr 1 and strength 0.01, far outside the grid."""

    def bowl(point):
        return math.log10(point["lr"]) ** 2 + (math.log10(point["strength"]) + 2) ** 2

    tens = tuple(float(f"1e{n}") for n in range(-5, 3))
    everywhere = points_of({"lr": tens, "strength": tens})
    record = filled(tmp_path, "ewc", everywhere, bowl)
    start = points_of({"lr": (0.001, 0.01), "strength": (10.0, 100.0)})
    far = widen_search(record, start, 9, 1, lambda found: None)
    assert len(far) < len(everywhere)
    assert record.recipe(values_of(far), far, 1)["settings"] == {"lr": 1.0, "strength": 0.01}
    assert values_of(far) == {"lr": (0.001, 0.01, 0.1, 1.0, 10.0), "strength": (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)}
    near = widen_search(record, start, 1, 1, lambda found: None)
    assert record.recipe(values_of(near), near, 1)["settings"] == {"lr": 0.1, "strength": 1.0}
    assert widen_search(record, start, 0, 1, lambda found: None) == start


@pytest.mark.parametrize("all_tasks", [False, True])
def test_the_score_leads_and_the_search_ends_where_it_falls_no_more(tmp_path, all_tasks):
    """With two tasks the rule takes the least forgetting within an error of the best: the smallest rate there is."""
    record = TrialRecord(Search("mnist-5split", "ord-ft", all_tasks=all_tasks), tmp_path)
    rates = (1e-5, 1e-4, 1e-3, 0.01, 0.1)
    scores = {1e-5: 0.9, 1e-4: 0.52, 1e-3: 0.51, 0.01: 0.5, 0.1: 0.55}
    record.trials = [
        {"settings": {"lr": lr}, "score": scores[lr], "error": 0.03, "risen": lr, "acc": 90.0} for lr in rates
    ]
    inside = [{"lr": lr} for lr in (1e-3, 0.01, 0.1)]
    assert choose(record.trials[2:])["settings"] == {"lr": 1e-3}, "the rule's choice lies at the edge"
    assert widen_search(record, inside, 3, 1, lambda found: None) == inside
    edge = [{"lr": lr} for lr in (0.01, 0.1)]
    assert widen_search(record, edge, 3, 1, lambda found: None) == [*edge, {"lr": 1e-3}]


def test_a_score_that_stays_the_same_ends_the_search(tmp_path):
    rates = (1e-4, 1e-3, 0.01, 0.1)
    record = filled(tmp_path, "ord-ft", [{"lr": lr} for lr in rates], lambda point: 0.5 + (point["lr"] == 0.1))
    edge = [{"lr": 0.01}, {"lr": 0.1}]
    assert widen_search(record, edge, 3, 1, lambda found: None) == [*edge, {"lr": 1e-3}]


def test_what_a_method_does_not_allow_is_not_tried(tmp_path):
    """More than all of a net cannot be pruned."""
    grid = {"lr": (0.1,), "prune": (0.5, 0.75)}
    record = filled(tmp_path, "packnet", points_of(grid), lambda point: -point["prune"])
    assert widen_search(record, points_of(grid), 3, 1, lambda found: None) == points_of(grid)


def test_the_command_goes_on_beyond_its_grid(tmp_path):
    words = ["tune", "mnist-5split", "--method", "ord-ft", "--hidden", "4", "--epochs", "1", "--widen", "1"]
    words += ["--grid", "lr=0.0001,0.001", "--results", str(tmp_path), "--out", str(tmp_path)]
    answer = CliRunner().invoke(commands.app, words)
    assert answer.exit_code == 0, answer.output
    assert "chosen of 3" in answer.output
    assert "lr=0.01" in answer.output
    refused = CliRunner().invoke(commands.app, [*words, "--trials", "2"])
    assert refused.exit_code != 0
    assert "leave one of them out" in refused.output + refused.stderr
