"""Tables: medians, ratios and bars."""

import statistics

import pytest
import torch

from tests.experiments.bench.small import MLP, RESNET
from ucb.experiments.bench.results import (
    MLP_BARS,
    RESNET_BARS,
    SpeedBar,
    Timing,
    cells,
    cpu_result,
    gpu_result,
    groups_of,
    missing,
    remarks,
    tabulate,
)
from ucb.experiments.bench.timing import Measured, Work


def small_group(*bars):
    measured = Measured({"floor": [2.0, 1.0, 30.0], "ours": [5.0, 4.0, 3.0], "floor, bf16": [0.5]})
    compared = {"floor": {"floor": "floor", "ours": "floor", "floor, bf16": "nobody"}}
    return tabulate(measured, "title", compared, bars)


def test_ratios_are_those_of_medians():
    group = small_group()
    assert [row["median"] for row in group["rows"].values()] == [2, 4, 0.5]
    assert [row["of"]["floor"] for row in group["rows"].values()] == [1, 2, None]
    heads, rows = cells(group, "step", 2)
    assert heads == ["step", "ms", "of floor"]
    assert rows == [["floor", "2.00", "1.00"], ["ours", "4.00", "2.00"], ["floor, bf16", "0.50", "-"]]


@pytest.mark.parametrize(
    ("bar", "value", "said"),
    [
        (SpeedBar("ours", 4.0, said="4 ms"), 4, "4 ms: held"),
        (SpeedBar("ours", 3.9, said="3.9 ms"), 4, "3.9 ms: MISSED"),
        (SpeedBar("ours", 2.0, "floor", said="2 x floor"), 2, "2 x floor: held"),
        (SpeedBar("ours", 1.9, "floor", said="1.9 x floor"), 2, "1.9 x floor: MISSED"),
    ],
)
def test_a_bar_is_held_or_missed(bar, value, said):
    group = small_group(bar)
    assert [(found["value"], found["holds"]) for found in group["bars"]] == [(value, "held" in said)]
    heads, rows = cells(group, "step", 2)
    assert heads[-1] == "bar"
    assert [row[-1] for row in rows] == ["", said, ""]


@pytest.mark.parametrize("bar", [SpeedBar("nobody", 1.0), SpeedBar("ours", 1.0, "nobody")])
def test_a_bar_of_what_was_not_measured_is_not_judged(bar):
    assert small_group(bar)["bars"] == []


def test_the_bars_are_those_that_were_set():
    assert [(bar.row, bar.limit, bar.of) for bar in (*MLP_BARS, *RESNET_BARS)] == [
        ("weights", 0.30, None),
        ("local", 0.15, None),
        ("ord-ft through the engine", 1.3, "1 deterministic net"),
        ("weights", 1.6, "its convolutions alone"),
    ]


def test_a_gpus_tables_have_every_row():
    result = gpu_result({"mlp": MLP, "resnet18": RESNET}, Timing(2, torch.device("cpu"), 0.0))
    mlp, resnet = result["nets"]["mlp"], result["nets"]["resnet18"]
    estimators = ("weights", "local", "flipout")
    captured = ("1 deterministic net", "3 deterministic nets", "ord-ft through the engine", *estimators)
    rows = [*captured, *(f"{name}, bf16" for name in captured)]
    rows += [f"{name}, {how}" for name in estimators for how in ("eager", "without kernels")]
    assert list(mlp["rows"]) == rows
    floors = ("its convolutions alone", "1 deterministic net on 8 images", "weights")
    assert list(resnet["rows"]) == [*floors, *(f"{name}, bf16" for name in floors)]
    for group in (mlp, resnet):
        for row in group["rows"].values():
            assert len(row["ms"]) == 2
            assert row["median"] == statistics.median(row["ms"])
        assert group["notes"] == {}
    of = mlp["rows"]["weights, bf16"]["of"]
    assert of["3 nets"] == (
        mlp["rows"]["weights, bf16"]["median"] / mlp["rows"]["3 deterministic nets, bf16"]["median"]
    )
    assert [bar["row"] for bar in mlp["bars"]] == ["weights", "local", "ord-ft through the engine"]
    (bar,) = resnet["bars"]
    assert bar["value"] == resnet["rows"]["weights"]["of"]["convolutions"]
    assert [heads[:2] for _, (heads, _) in groups_of(result)] == [["step", "ms"]] * 2
    assert [title for title, _ in groups_of(result)] == [MLP.title, RESNET.title]


def test_notes_and_what_is_missing_are_said():
    measured = Measured({"ours": [1.0]}, {"ours": "not captured"}, {"peer": "No module named 'peer'"})
    result = {"nets": {"mlp": tabulate(measured, "title", {})}, "kernels": "none", "machine": "a desk"}
    assert remarks(result) == ["Kernels: none. Machine: a desk.", "ours: not captured."]
    assert missing(result) == ["left out: peer (No module named 'peer')"]


@pytest.mark.parametrize(
    ("rival", "columns"),
    [
        ({"blitz-x 1.0, mixture prior": [4.0], "torchbnn, Gaussian prior": [16.0]}, {"blitz": 4, "torchbnn": 16}),
        ({}, {"1 pass": 2}),
    ],
)
def test_a_cpus_rows_are_divided_by_other_libraries_or_else_by_a_floor(rival, columns):
    ms = {"ucb weights": [8.0], **rival, "1 pass of one deterministic net": [2.0]}
    ((title, (heads, rows)),) = groups_of({"title": "an MLP", "ms": ms})
    assert (title, heads) == ("an MLP", ["one step", "ms", *(f"of {name}" for name in columns)])
    assert rows[0] == ["ucb weights", "8.0", *(f"{8 / ms:.2f}" for ms in columns.values())]


def test_other_libraries_take_turns_with_ours():
    def rivals(sizes, x, y):
        assert x.shape == (MLP.batch, MLP.inputs)
        return {"rival": lambda: Work(lambda: None), "absent": missing_library}

    def missing_library():
        raise ImportError("No module named 'absent'")

    on_cpu = cpu_result(2, MLP, rivals)
    on_gpu = gpu_result({"mlp": MLP}, Timing(1, torch.device("cpu"), 0.0), rivals)["nets"]["mlp"]
    assert len(on_cpu["ms"]["rival"]) == 2
    assert list(on_cpu["ms"])[-3:] == ["rival", "3 passes of one deterministic net", "1 pass of one deterministic net"]
    assert on_cpu["left_out"] == {"absent": "No module named 'absent'"}
    assert len(on_gpu["rows"]["rival, eager"]["ms"]) == 1
    assert on_gpu["left_out"] == {"absent, eager": "No module named 'absent'"}
