import pytest

from tests.report.results import result, written
from ucb.report import results_at


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
