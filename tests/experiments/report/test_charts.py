"""What is drawn is what the result says."""

import json
import math
from pathlib import Path
from statistics import mean, stdev

import pytest

from tests.experiments.report.results import CURVE, HALF, MATRIX, SIGMA, TASKS, result
from ucb.experiments.report import charts, comparison

RESULTS = Path(__file__).parents[3] / "results"
COMMITTED = sorted([*RESULTS.glob("mnist-5split/*.json"), *RESULTS.glob("cifar-alternating/*.json")])


def committed(path):
    return json.loads(path.read_text())


def test_the_heat_map_holds_the_accuracy_matrix():
    chart = charts.matrix(result())
    (trace,) = chart.traces
    assert [[value for value in row if value is not None] for row in trace["z"]] == MATRIX
    assert trace["z"][0] == [99.0, None, None]
    assert chart.layout["xaxis"]["ticktext"] == ["0/1", "&lt;b&gt;2&lt;/b&gt;", "4/5"]
    assert [row[0] for row in chart.table.rows] == TASKS
    assert [row[1:] for row in chart.table.rows] == trace["z"]


def test_each_task_has_a_line_from_when_it_was_learnt():
    *lines, so_far = charts.over_time(result()).traces
    assert [(line["x"], line["y"]) for line in lines] == [
        ([1, 2, 3], [99.0, 97.0, 95.0]),
        ([2, 3], [96.0, 96.5]),
        ([3], [94.0]),
    ]
    assert so_far["y"] == [mean(row) for row in MATRIX]


def test_forgetting_is_from_the_best_before_the_last_task():
    chart = charts.forgetting(result())
    assert chart.traces[0]["y"] == [4.0, -0.5]
    assert charts.forgetting(result(tasks=["0/1"], accuracy_matrix=[[99.0]])).traces == []


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_charts_of_committed_results_agree_with_their_figures(path):
    found = committed(path)
    assert mean(charts.forgetting(found).traces[0]["y"]) == pytest.approx(found["forgetting"], abs=1e-9)
    assert charts.over_time(found).traces[-1]["y"][-1] == pytest.approx(found["acc"])
    assert charts.seconds(found).traces[0]["y"] == found["task_seconds"]
    assert len(charts.charts_of(found)) == 7


def test_sigma_at_the_end_spans_its_percentiles():
    (trace,) = charts.sigma_at_end(result()).traces
    assert trace["x"] == [0.5, 1.0]
    bars = trace["error_x"]
    for i, name in enumerate(SIGMA):
        assert trace["x"][i] + bars["array"][i] == pytest.approx(SIGMA[name]["ratio_p99"])
        assert trace["x"][i] - bars["arrayminus"][i] == pytest.approx(SIGMA[name]["ratio_p1"])


def test_sigma_by_task_has_a_column_for_each_task():
    (trace,) = charts.sigma_by_task(result()).traces
    assert trace["text"] == [[0.75, 0.5, 0.5], [1.0, 1.0, 1.0]]
    assert [[2**value for value in row] for row in trace["z"]] == [pytest.approx(row) for row in trace["text"]]
    assert trace["zmin"] == -trace["zmax"], "a ratio of 1 has the colour of the middle"


def test_layers_that_are_not_named_again_are_as_they_were():
    name = "trunk.1.weight"
    short = result(sigma_by_task=[HALF, {name: SIGMA[name]}, {}])
    assert charts.sigma_by_task(short) == charts.sigma_by_task(result())


def test_the_reliability_diagram_and_its_error():
    chart = charts.calibration(result())
    *curves, ideal = chart.traces
    assert [curve["name"] for curve in curves] == ["0/1", "&lt;b&gt;2&lt;/b&gt;", "4/5"]
    for curve in curves:
        assert (curve["x"], curve["y"], curve["customdata"]) == (CURVE["confidence"], CURVE["accuracy"], CURVE["count"])
    assert ideal["x"] == ideal["y"]
    assert chart.table.rows[0][1] == pytest.approx((10 * 0.1 + 30 * 0.1) / 40)


def test_what_an_older_result_lacks_is_left_out_with_a_word():
    old = result(sigma_by_task=None, calibration=None, task_seconds=None)
    for draw in (charts.sigma_by_task, charts.calibration, charts.seconds):
        chart = draw(old)
        assert chart.traces == []
        assert "present version" in chart.note
    ordinary = result(sigma=None, sigma_by_task=None)
    for draw in (charts.sigma_at_end, charts.sigma_by_task):
        assert draw(ordinary).note == "This method has no sigma."


def test_tasks_that_were_not_judged_have_no_figures():
    joint = result(accuracy_matrix=[[None], [None, None], [95.0, 96.0, 94.0]], bwt=None)
    assert charts.over_time(joint).traces[-1]["y"] == [None, None, 95.0]
    assert charts.forgetting(joint).traces == []
    assert charts.matrix(joint).traces[0]["z"][0] == [None, None, None]


def test_seeds_become_a_mean_and_a_spread_and_the_best_is_first():
    runs = [result("ucb", seed, acc) for seed, acc in enumerate((95.0, 97.0, 96.0))]
    runs += [result("ord-ft", seed, acc) for seed, acc in enumerate((98.0, 99.0))] + [result("ewc", 0, 90.0)]
    ((heading, (acc, bwt, time, memory, weights, stored)),) = comparison.sections_of(runs)
    assert heading == "mnist-5split, 3 tasks"
    assert acc.layout["yaxis"]["ticktext"] == ["ord-ft", "ucb", "ewc"]
    means, each = acc.traces
    assert means["x"] == [98.5, 96.0, 90.0]
    assert means["error_x"]["array"] == [pytest.approx(stdev([98, 99])), pytest.approx(1.0), None]
    assert sorted(zip(each["y"], each["x"], strict=True)) == [(1, 98), (1, 99), (2, 95), (2, 96), (2, 97)]
    assert [row[3] for row in acc.table.rows] == ["0, 1", "0, 1, 2", "0"]
    assert bwt.traces[0]["x"] == [-1.0, -1.0, -1.0]
    assert time.traces[0]["x"] == [6.5, 7.0, 6.0]
    assert memory.traces[0]["x"] == [pytest.approx(500)] * 3
    assert weights.traces[0]["x"] == [pytest.approx(0.001)] * 3
    assert stored.traces[0]["x"] == [pytest.approx(3)] * 3


def test_other_settings_are_another_row_and_other_tasks_another_section():
    slow = result(seed=1)
    slow["config"]["settings"] = {"lr": 0.1, "clip": 1.0}
    groups = comparison.groups_of([result(seed=0), slow])
    assert [group.label for group in groups] == ["ucb (lr=0.3)", "ucb (clip=1, lr=0.1)"]
    hidden = result(seed=2)
    hidden["config"]["single_head"] = True
    assert [name for name, _ in comparison.sections_of([result(seed=0), result(seed=1), hidden, hidden])] == [
        "mnist-5split, 3 tasks",
        "mnist-5split, 3 tasks, single head",
    ]
    assert comparison.sections_of([result(seed=0), hidden]) == []
    told = result(seed=3)
    told["config"] |= {"single_head": True, "apart": True, "task_told": True}
    assert comparison.stream_name(told) == "mnist-5split, 3 tasks, single head, outputs apart, task told"
    known = result(seed=1)
    known["config"] |= {"apart": False, "task_told": False}
    assert len(comparison.groups_of([result(seed=0), known])) == 1, "earlier results do not name these choices"


def test_a_figure_that_only_some_runs_have_is_compared_among_these():
    runs = [result("ucb", 0), result("ord-jt", 0, bwt=None)]
    ((_, (_, bwt, *_)),) = comparison.sections_of(runs)
    assert bwt.layout["yaxis"]["ticktext"] == ["ucb"]
    ((_, (_, none, *_)),) = comparison.sections_of([result("ord-jt", 0, bwt=None), result("bbb-jt", 0, bwt=None)])
    assert none.traces == []


def test_no_two_of_thirty_lines_look_alike():
    tasks = [f"task {number}" for number in range(30)]
    many = result(tasks=tasks, accuracy_matrix=[[50.0] * (n + 1) for n in range(30)])
    looks = [(i % 8, trace["line"]["dash"]) for i, trace in enumerate(charts.over_time(many).traces[:-1])]
    assert len(set(looks)) == 30
    assert charts.matrix(many).layout["xaxis"]["ticktext"][-1] == "30"
    assert all(math.isfinite(trace["y"][0]) for trace in charts.over_time(many).traces)
