"""The benchmark of waves writes what it found."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.usefixtures("small")
def test_the_benchmark_measures_five_waves(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("UCB_DATA", raising=False)
    import waves

    words = ["waves.py", "mnist", "cifar10", "--methods", "fixed", "--images", "12", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    try:
        waves.main()
    finally:
        sys.modules.pop("waves")
    assert "cifar10 is not here" in capsys.readouterr().out
    found = json.loads((tmp_path / "mnist-fixed-seed0.json").read_text())
    assert len(found["waves"]) == 5
    assert 30 < found["accuracy"] <= 100
    assert found["largest_difference_to_one_fit"] < 1e-6
    assert 0 <= found["ece"] <= 1
    ten, ordinary = found["first_wave_of_ten_images"], [row["so_far"] for row in found["waves"]]
    assert [len(row["of_waves"]) for row in ten] == [len(row["of_waves"]) for row in ordinary] == [1, 2, 3, 4, 5]
    assert ten[0]["accuracy"] > 60
    assert ordinary[-1]["accuracy"] == found["accuracy"], "the last wave's answers are the model's"
