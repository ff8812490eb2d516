"""Every program in examples/ runs; with ``--quick`` it does so in seconds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def run(file, *words, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", str(file), *words]
    return subprocess.run(
        command, check=True, timeout=300, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout


def test_there_are_examples():
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_runs(file, tmp_path):
    """It says what it prints; nothing it does can fail without a word."""
    assert "--quick" in file.read_text().split('"""')[1]
    assert run(file, "--quick", cwd=tmp_path).strip()


def figures(text):
    """The table of R^2 of each run, row by row."""
    rows = re.findall(r"after task \d: +(.+)", text)
    return [[float(word) for word in row.split()] for row in rows]


@pytest.mark.slow
def test_the_regression_stream_prints_what_its_header_says(tmp_path):
    """Noise, and so the figures, differ a little between kernels; what they show must not."""
    (file,) = (file for file in FILES if file.name == "regression_stream.py")
    *_, first, second, third, _, _, unprotected = found = figures(run(file, cwd=tmp_path))
    assert [len(row) for row in found] == [1, 2, 3, 1, 2, 3]
    for row, said in zip(found[:3], figures(file.read_text().split('"""')[1]), strict=False):
        assert row == pytest.approx(said, abs=0.1)
    assert min(*first, *second, *third) > 0.5
    assert third[0] > unprotected[0] + 0.2
