import math

import pytest

from tests.experiments.report.results import CURVE, result, written
from ucb.experiments.report import comparison
from ucb.experiments.report.page import page_of
from ucb.experiments.report.results import results_at


def seeds(*places):
    return [found.result["seed"] for found in results_at(places)]


def test_files_run_folders_and_folders_of_these_are_read_each_once(tmp_path):
    file = written(tmp_path / "some" / "ucb-seed0.json", result(seed=0))
    run = written(tmp_path / "runs" / "a" / "result.json", result(seed=1)).parent
    written(run / "config.json", {})
    written(tmp_path / "runs" / "group" / "b" / "result.json", result(seed=2))
    written(tmp_path / "runs" / "unfinished" / "config.json", {"method": "ucb"})
    written(tmp_path / "runs" / "times.json", [1, 2])
    assert seeds(file) == [0]
    assert seeds(run) == [1]
    assert seeds(tmp_path / "runs") == [1, 2]
    assert seeds(tmp_path / "runs", file, run, file) == [1, 2, 0]


def test_a_run_in_two_files_is_one_run_and_the_first_file_counts(tmp_path):
    """As `ucb reproduce` leaves it: in its run's folder, and among the results."""
    runs, results = tmp_path / "runs" / "tables", tmp_path / "results" / "tables"
    for seed in (0, 1):
        written(runs / f"ucb-seed{seed}" / "result.json", result(seed=seed, acc=90.0 + 2 * seed))
        turned = dict(reversed(result(seed=seed, acc=90.0 + 2 * seed).items()))
        written(results / f"ucb-seed{seed}.json", turned)
    for first, second in ((runs, results), (results, runs)):
        found = results_at([first, second])
        assert [each.result["seed"] for each in found] == [0, 1]
        assert all(each.path.is_relative_to(first) for each in found)
        ((_, charts),) = comparison.sections_of([each.result for each in found])
        assert charts[0].table.rows[0][1:4] == [91.0, pytest.approx(math.sqrt(2)), "0, 1"]


def test_runs_that_differ_in_a_figure_are_two(tmp_path):
    """Also where Python calls the values equal."""
    values = [result(seconds=6.0), result(seconds=6.5), result(), result(), result()]
    for value, clip in zip(values[2:], (0, 0.0, False), strict=True):
        value["config"] = {**value["config"], "settings": {"clip": clip}}
    files = [written(tmp_path / f"{number}.json", value) for number, value in enumerate(values)]
    assert [found.path for found in results_at([tmp_path])] == files


def test_runs_that_are_not_done_are_left_out_wherever_they_are_named(tmp_path):
    runs = tmp_path / "runs"
    done = written(runs / "done" / "result.json", result()).parent
    cut = written(runs / "cut" / "config.json", {"method": "ucb"}).parent
    deep = written(runs / "group" / "cut" / "config.json", {"method": "ucb"}).parent
    (runs / "empty").mkdir()
    for places, left in (
        ([runs], [cut, deep]),
        (sorted(runs.iterdir()), [cut, runs / "empty", deep]),
        ([done, runs, cut], [cut, deep]),
    ):
        left_out = []
        assert [found.path for found in results_at(places, left_out.append)] == [done / "result.json"]
        assert left_out == left
    with pytest.raises(ValueError, match=r"cut is not done: .*; so it is at 2 more"):
        results_at([cut, runs / "empty", runs / "group"])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1], "holds no JSON object"),
        ({"method": "ucb"}, "benchmark is missing"),
        (result(seed="0"), "seed is missing, or no int"),
        (result(accuracy_matrix=[[1.0], [1.0, 2.0]]), "no row for each of its tasks"),
        (result(accuracy_matrix=[[1.0], [1.0], [1.0]]), "no row for each of its tasks"),
        (result(accuracy_matrix=[["a"], [1.0, 2.0], [1.0, 2.0, 3.0]]), "no row for each of its tasks"),
        (result(tasks=[], accuracy_matrix=[]), "no row for each of its tasks"),
    ],
)
def test_a_file_that_is_no_result_is_named_and_what_it_lacks(tmp_path, value, said):
    path = written(tmp_path / "result.json", value)
    for place in (path, tmp_path):
        with pytest.raises(ValueError, match=said) as refusal:
            results_at([place])
        assert str(path) in str(refusal.value)


def test_places_that_hold_nothing_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not there"):
        results_at([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="holds no result of a run"):
        results_at([tmp_path])
    (tmp_path / "broken.json").write_text('{"acc": ')
    with pytest.raises(ValueError, match=r"broken.json is damaged, or no JSON"):
        results_at([tmp_path])
    unfinished = written(tmp_path / "run" / "config.json", {}).parent
    with pytest.raises(ValueError, match="is not done"):
        results_at([unfinished])


LONE = {"trunk": {"ratio_p1": 0.5, "ratio_p50": 1.0, "ratio_p99": 2.0}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("calibration", [{**CURVE, "accuracy": [0.5]}] * 3),
        ("calibration", [CURVE] * 2),
        ("calibration", [{**CURVE, "count": [0, 0]}] * 3),
        ("calibration", [{"count": [1]}] * 3),
        ("epochs", [1, 1]),
        ("task_seconds", [1.0, 2.0, 3.0, 4.0]),
        ("task_seconds", 6.0),
        ("nll", [0.1]),
        ("after_task_end", ["a", "b", "c"]),
        ("tasks", ["0/1", 2, "4/5"]),
        ("acc", "95"),
        ("acc", math.nan),
        ("bwt", math.inf),
        ("seconds", [6.0]),
        ("weights", True),
        ("peak_memory_bytes", "much"),
        ("beside", -1),
        ("beside", 1.5),
        ("sigma", {"trunk": {"ratio_p50": 1.0}}),
        ("sigma", {"trunk": 1.0}),
        ("sigma", {"trunk": {"ratio_p1": 0.0, "ratio_p50": 1.0, "ratio_p99": 2.0}}),
        ("sigma_by_task", [{}, LONE, LONE]),
        ("sigma_by_task", [LONE] * 4),
        ("device", 3),
        ("versions", ["0.1.0"]),
    ],
)
def test_an_odd_field_is_named_with_its_file_and_drawn_in_no_other_way(tmp_path, field, value):
    path = written(tmp_path / "odd.json", result(**{field: value}))
    with pytest.raises(ValueError, match=f"odd.json cannot be drawn: {field} must be ") as refusal:
        results_at([written(tmp_path / "right.json", result()), path])
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("method", None), ("benchmark", 1), ("settings", [1]), ("training", "epochs"), ("net_options", 3), ("data", "a")],
)
def test_an_odd_configuration_is_named_with_its_file(tmp_path, field, value):
    odd = result()
    odd["config"] = {**odd["config"], field: value}
    path = written(tmp_path / "odd.json", odd)
    with pytest.raises(ValueError, match=f"odd.json cannot be drawn: {field} of its config must be "):
        results_at([path])


def test_what_a_result_may_lack_may_be_null_too(tmp_path):
    whole = result()
    needed = ("benchmark", "method", "seed", "tasks", "accuracy_matrix", "config")
    nothing = whole | dict.fromkeys(set(whole) - set(needed))
    found = results_at([written(tmp_path / "null.json", nothing), written(tmp_path / "right.json", whole)])
    assert page_of(found).count('class="view"') == 3
