"""``ucb bench`` as a user meets it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.experiments.bench.small import MLP, RESNET
from ucb.cli import app as commands
from ucb.cli import bench
from ucb.experiments.bench import results
from ucb.experiments.bench.steps import NETS

ROOM = Path(bench.__file__).parent.parent / "experiments" / "bench"


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for name, sizes in {"mlp": MLP, "resnet18": RESNET}.items():
        monkeypatch.setitem(NETS, name, sizes)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "COLUMNS", "UCB_KERNELS"):
        monkeypatch.delenv(name, raising=False)


def ucb(*words):
    return CliRunner().invoke(commands.app, ["bench", *map(str, words)])


def test_on_a_cpu_it_prints_a_table_and_writes_every_figure(tmp_path):
    path = tmp_path / "made" / "step.json"
    answer = ucb("--repeats", 2, "--out", path)
    assert answer.exit_code == 0, answer.output
    found = json.loads(path.read_text())
    assert found["command"] == "ucb bench --device cpu --repeats 2 --nets mlp"
    assert set(found["versions"]) >= {"ucb", "torch", "python"}
    ours = {f"ucb {name}" for name in ("weights, mixture prior", "weights, Gaussian prior", "local, Gaussian prior")}
    ours |= {f"ucb {name}, mixture prior (1 prior sample)" for name in ("local", "flipout")}
    floors = {"3 passes of one deterministic net", "1 pass of one deterministic net"}
    assert set(found["ms"]) == ours | floors
    assert all(len(ms) == 2 for ms in found["ms"].values())
    for name in found["ms"]:
        assert re.search(rf"^{re.escape(name)} +\d+\.\d +\d+\.\d\d$", answer.stdout, re.MULTILINE), name
    assert found["machine"] in answer.stdout
    assert f"Peak memory of `weights`: {found['memory']:.2f} times mu and rho" in answer.stdout


def test_a_missed_bar_is_shown_as_missed(tmp_path, monkeypatch):
    """With a net this small, a large batch takes more memory than the weights."""
    monkeypatch.setitem(NETS, "mlp", replace(MLP, batch=500))
    answer = ucb("--repeats", 1, "--out", tmp_path / "step.json")
    (bar,) = json.loads((tmp_path / "step.json").read_text())["bars"]
    assert bar["value"] > bar["limit"]
    assert bar["holds"] is False
    assert answer.stdout.endswith(f"peak memory of weights {bar['value']:.2f}, <= 6 times mu and rho: MISSED\n")


def test_on_a_gpu_the_bars_stand_in_the_tables(tmp_path, monkeypatch):
    """The same on a CPU, where nothing is captured and the bars in milliseconds mean nothing."""
    monkeypatch.setattr("ucb.checks.find_device", lambda _: torch.device("cpu"))
    monkeypatch.setattr(
        results, "measure_nets", lambda names, n, device: results.gpu_result(NETS, results.Timing(n, device, 0.0))
    )
    answer = ucb("--device", "cuda", "--out", tmp_path / "step.json")
    assert answer.exit_code == 0, answer.output
    found = json.loads((tmp_path / "step.json").read_text())
    assert found["command"] == "ucb bench --device cuda --repeats 3 --nets mlp,resnet18"
    bars = [bar for group in found["nets"].values() for bar in group["bars"]]
    assert len(bars) == 4
    for bar in bars:
        word = "held" if bar["holds"] else "MISSED"
        assert bar["holds"] == (bar["value"] <= bar["limit"])
        assert re.search(rf"^{bar['row']} .* {re.escape(bar['said'])}: {word}$", answer.stdout, re.MULTILINE), bar
    assert MLP.title in answer.stdout
    assert RESNET.title in answer.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeats", "0"], "repeats must be at least 1, not 0"),
        (["--nets", "resnet81"], "there is no net 'resnet81' to time: did you mean resnet18?"),
        (["--nets", "mlp,resnet18"], "resnet18 is timed on a GPU only: use --device cuda, or --nets mlp"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(words, said):
    answer = ucb(*words)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert said in answer.stderr.replace("\n", " ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    answer = ucb("--device", "cuda")
    assert answer.exit_code == 2
    assert "PyTorch finds no CUDA GPU" in answer.stderr.replace("\n", " ")


def test_the_room_knows_nothing_of_the_command_line():
    files = list(ROOM.glob("*.py"))
    assert len(files) > 3
    for path in files:
        assert "ucb.cli" not in path.read_text(), path
