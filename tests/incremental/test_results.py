"""The figures in results/waves are those that the documents promise, and they were measured with today's defaults."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ucb.incremental.trunks import build_trunk

RESULTS = Path(__file__).parent.parent.parent / "results" / "waves"
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
NUMBER = 8
"""Bytes of a number in the head's sums."""


def runs(data, method):
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{data}-{method}-seed*.json"))]
    assert [run["seed"] for run in found] == list(range(len(found)))
    assert found
    return found


def fixed_runs():
    return [run for data in SHAPES for run in runs(data, "fixed")]


def test_digits_are_right_in_98_of_100_and_other_images_are_doubted():
    for run in runs("mnist", "fixed"):
        assert run["accuracy"] >= 98
        assert set(run["unlike"]) == {"notmnist", "fashion_mnist"}
        assert all(other["auroc"] >= 0.9 for other in run["unlike"].values())
        assert all(other["called_unsure"] > 5 * run["called_unsure"] for other in run["unlike"].values())


@pytest.mark.parametrize("data", SHAPES)
def test_wave_by_wave_is_one_fit(data):
    assert all(run["largest_difference_to_one_fit"] <= 1e-6 for run in runs(data, "fixed"))


def test_the_same_defaults_serve_both_and_are_those_of_today():
    for run in fixed_runs():
        today = build_trunk(SHAPES[run["data"]])
        assert (run["trunk"], run["features"]) == (today.facts, today.features)
    nets = [run for data in SHAPES for run in runs(data, "ucb-ng")]
    assert all((run["net"], run["settings"]) == (nets[0]["net"], nets[0]["settings"]) for run in nets)


def test_both_methods_learn_and_are_asked_the_same():
    for data in SHAPES:
        both = [runs(data, method) for method in ("fixed", "ucb-ng")]
        assert {run["threads"] for each in both for run in each} == {1}, "the page states the speed of a core"
        assert len({(run["images_a_class"], run["tested"], *run["unlike"]) for each in both for run in each}) == 1
        assert both[0][0]["tested"] == 10_000, "all test images"
        assert [run["seed"] for run in both[0]] == [run["seed"] for run in both[1]]


@pytest.mark.parametrize("data", SHAPES)
def test_a_file_grows_by_the_outputs_of_new_classes_alone(data):
    for run in runs(data, "fixed"):
        sizes, outputs = run["bytes_after_each_wave"], 2 * NUMBER * (run["features"] + 2)
        assert all(0 < after - before <= outputs + 400 for before, after in pairwise(sizes))


@pytest.mark.parametrize(("data", "least"), [("mnist", 95), ("cifar10", 60)])
def test_a_first_wave_of_ten_images_gives_a_working_model(data, least):
    """It tells its two classes apart, and its filters serve the classes of later waves nearly as well as others do."""
    for run in runs(data, "fixed"):
        ten, ordinary = run["first_wave_of_ten_images"], [row["so_far"] for row in run["waves"]]
        assert ten[0]["accuracy"] >= least
        assert sum(ten[-1]["of_waves"][1:]) >= sum(ordinary[-1]["of_waves"][1:]) - 4
        assert ordinary[-1]["accuracy"] == pytest.approx(run["accuracy"], abs=0.01)


def test_the_fixed_trunk_is_the_better_one():
    """The page advises it: then it has to be."""
    for data in SHAPES:
        fixed, ongoing = ([run["accuracy"] for run in runs(data, method)] for method in ("fixed", "ucb-ng"))
        assert min(fixed) > max(ongoing)


def test_tables_as_they_are_are_learnt_no_worse_than_by_logistic_regression():
    """By no more than one standard error of the paired difference, which is recomputed here; chance is one row."""
    found = json.loads((RESULTS / "tables.json").read_text())
    assert set(found["sets"]) == {"penguins", "wine", "breast_cancer", "digits"}
    for table in found["sets"].values():
        for way in ("ucb", "ucb_three_waves"):
            ours, theirs = table[way], table["logistic_regression"]
            assert len(ours) == len(theirs) == found["splits"] == 5
            differences = np.subtract(ours, theirs)
            error = differences.std(ddof=1) / 5**0.5
            assert differences.mean() >= -error - 1e-9
            assert table[f"{way}_beside_it"] == pytest.approx(
                {"difference": differences.mean(), "standard_error": error}
            )


def test_dividing_by_the_root_of_the_count_is_near_the_best_and_far_above_nothing():
    means = json.loads((RESULTS / "rare-classes.json").read_text())["means"]
    assert means["0.5"] >= max(means.values()) - 0.5
    assert means["0.5"] >= means["0.0"] + 3


def photographs(folder, data):
    found = [json.loads(path.read_text()) for path in sorted((RESULTS / folder).glob(f"{data}-fixed-seed*.json"))]
    assert [run["seed"] for run in found] == [0, 1, 2]
    return found


def test_photographs_are_right_as_often_as_promised_and_others_are_told_from_them():
    """In five waves of CIFAR10 and ten of CIFAR100, with the same defaults."""
    for folder, data, least in (
        ("efficientnet-lite0", "cifar10", 89),
        ("efficientnet-lite0-20", "cifar10", 77),
        ("efficientnet-lite0-all", "cifar100", 71),
    ):
        assert min(run["accuracy"] for run in photographs(folder, data)) >= least
    for run in photographs("efficientnet-lite0", "cifar10"):
        assert run["images_a_class"] == 2000
        assert run["ece"] <= 0.02
        assert run["unlike"]["svhn"]["auroc"] >= 0.97
        assert max(run["bytes_after_each_wave"]) < 150e6
