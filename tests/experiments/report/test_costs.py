"""What a page says of time and memory when runs shared a process."""

import json
from pathlib import Path

import pytest

from tests.experiments.report.results import result
from tests.experiments.report.test_page import Reader, charts_in, found, own_part
from ucb.experiments.report import comparison
from ucb.experiments.report.page import page_of
from ucb.experiments.report.results import describe_neighbours, leave_out_shared_memory

RESULTS = Path(__file__).parents[3] / "results"


def earlier(method="ucb", seed=0, memory=500, **changed):
    """A result from before results said what ran beside them."""
    return result(method, seed, beside=None, peak_memory_bytes=memory, device="a GPU", **changed)


def of(runs):
    """The charts of time and memory that compare runs, as on a page."""
    ((_, charts),) = comparison.sections_of(leave_out_shared_memory(runs))
    return charts[2], charts[3]


def test_one_figure_of_several_earlier_runs_is_that_of_their_process():
    runs = [earlier(seed=0), earlier(seed=1), earlier("ewc", memory=300), earlier("si", memory=None)]
    assert [run.get("peak_memory_bytes") for run in leave_out_shared_memory(runs)] == [None, None, 300, None]
    time, memory = of(runs)
    assert memory.layout["yaxis"]["ticktext"] == ["ewc"]
    assert "Not known of 2 of 4 runs: they shared a process with others" in memory.note
    assert "Earlier versions kept the peak of a run's process" in memory.note
    assert "2 of 4 runs may have learnt side by side with others" in time.note
    assert time.traces[0]["x"] == [6.5, 6.0, 6.0], "times are shown all the same"


def test_one_run_in_two_files_keeps_its_memory(tmp_path):
    assert "peak memory of its process (bytes)" in page_of(found(tmp_path, earlier(), earlier()))
    assert "perhaps side by side" not in page_of(found(tmp_path, earlier(), earlier()))


def test_two_runs_of_the_same_length_are_two():
    runs = [earlier(seed=0, seconds=6.0), earlier(seed=1, seconds=6.0)]
    assert [run["peak_memory_bytes"] for run in leave_out_shared_memory(runs)] == [None, None]


def test_results_that_say_they_were_alone_are_believed():
    """On a GPU two seeds may well hold the same."""
    runs = [result(seed=0), result(seed=1)]
    assert leave_out_shared_memory(runs) == runs
    time, memory = of(runs)
    assert memory.traces[0]["x"] == [pytest.approx(500)]
    assert "Not known" not in memory.note
    assert "side by side" not in time.note


def test_times_beside_others_are_said_to_be():
    def beside(seed, others):
        return result(seed=seed) | {"beside": others, "peak_memory_bytes": None}

    time, memory = of([beside(0, 14), beside(1, 14), result(seed=2)])
    assert "2 of 3 runs learnt side by side with 14 others: alone they take less." in time.note
    assert memory.table.rows[0][1] == pytest.approx(500)
    assert memory.table.rows[0][3] == "2", "the one seed that has it"
    time, memory = of([beside(0, 1), beside(1, 1)])
    assert "2 of 2 runs learnt side by side with 1 other:" in time.note
    assert memory.traces == []
    assert "side by side with 2 to 14 others" in of([beside(0, 2), beside(1, 14)])[0].note
    assert [describe_neighbours(beside(0, n)) for n in (0, 1, 2)] == [
        "",
        "side by side with 1 other",
        "side by side with 2 others",
    ]


def test_different_devices_are_named_beside_times_and_memory():
    runs = [result(seed=0), result(seed=1, device="cpu, 1 threads"), result(seed=2, device="a GPU")]
    for chart in of(runs):
        assert "Not all ran on the same device: a GPU; cpu, 1 thread." in chart.note
    assert "device" not in of(runs[:2])[0].note


def test_the_page_of_a_run_says_it_too(tmp_path):
    whole = result()
    together = whole | {"beside": 14, "peak_memory_bytes": None}
    text = page_of(found(tmp_path, together))
    assert len(charts_in(text)) == 7
    assert "not known: runs shared it" in Reader(own_part(text)).cells
    assert "seconds, side by side with 14 others" in text
    assert "on cpu, 1 thread, side by side with 14 others." in text
    second = Reader(own_part(page_of(found(tmp_path, whole | {"peak_memory_bytes": None}))))
    assert "not known" in second.cells
    assert "500,000,000" in Reader(own_part(page_of(found(tmp_path, whole)))).cells
    old = {key: value for key, value in whole.items() if key != "beside"}
    assert "peak memory of its process (bytes)" in page_of(found(tmp_path, old))


def test_committed_runs_that_were_side_by_side_are_compared_in_no_memory():
    runs = [json.loads(path.read_text()) for path in sorted((RESULTS / "tables" / "single-head").glob("*.json"))]
    earlier_runs = [run for run in runs if "beside" not in run]
    assert len({run["peak_memory_bytes"] for run in earlier_runs}) < len(earlier_runs)
    left = [
        run["peak_memory_bytes"]
        for run in leave_out_shared_memory(earlier_runs)
        if run["peak_memory_bytes"] is not None
    ]
    assert len(left) == len(set(left))
