"""The parts of the speed benchmarks that do not depend on the machine."""

import json
import statistics
import sys
from pathlib import Path

import pytest
import torch

from tests.experiments.bench.small import MLP
from ucb.experiments.bench.results import cpu_result


@pytest.fixture
def benchmark(monkeypatch):
    """Import a file of the folder benchmarks/ by name; afterwards nothing of it is left."""
    folder = Path(__file__).parent.parent / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    yield __import__
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_an_epoch_through_the_engine_does_the_work_of_the_bare_steps(benchmark):
    """Only then does their ratio say what the rest costs: after one epoch of each, the weights agree to the bit."""
    loader = benchmark("loader")
    stream = loader.one_task(loader.cifar10_or_noise(random=True, examples=100), 100)
    ends = []
    for way in (loader.through_the_engine, loader.bare):
        run = loader.begun(stream, "ord-ft", "cpu", graphs=True)
        before = run.method.net.state_dict()["trunk.0.weight"].clone()
        epoch = way(run)
        torch.manual_seed(1)  # for dropout
        assert loader.timed(run, epoch) > 0
        ends.append(run.method.net.state_dict())
        assert not torch.equal(ends[-1]["trunk.0.weight"], before)
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name


def test_the_loaders_benchmark_writes_what_it_found(benchmark, tmp_path, capsys):
    path = tmp_path / "made" / "loader.json"
    benchmark("loader").main(["--random", "--examples", "70", "--epochs", "3", "-o", str(path)])
    found = json.loads(path.read_text())
    assert (found["data"], found["examples"], found["method"], found["bar"]) == ("random", 70, "ord-ft", 1.1)
    assert {name: len(seconds) for name, seconds in found["seconds"].items()} == {"engine": 3, "bare": 3}
    engine, bare = (statistics.median(found["seconds"][name]) for name in ("engine", "bare"))
    assert found["ratio"] == {"engine": engine / bare}
    assert f"{engine / bare:.3f} times bare" in capsys.readouterr().out


def test_more_examples_than_there_are_is_said(benchmark):
    loader = benchmark("loader")
    with pytest.raises(SystemExit, match="random has 20 examples, not 21"):
        loader.one_task(loader.cifar10_or_noise(random=True, examples=20), 21)


def test_other_libraries_are_timed_in_turns_with_ours(benchmark, tmp_path, monkeypatch, capsys):
    peers = benchmark("peers")
    monkeypatch.setitem(peers.NETS, "mlp", MLP)
    monkeypatch.delenv("UCB_KERNELS", raising=False)
    peers.main(["--repeats", "1", "--out", str(tmp_path / "made" / "step.json")])
    found = json.loads((tmp_path / "made" / "step.json").read_text())
    labels = {peer.label for peer in peers.PEERS}
    ours = set(cpu_result(1, MLP)["ms"])
    assert set(found["ms"]) == ours | labels - set(found["left_out"])
    assert set(found["left_out"]) <= labels
    assert [bar["row"] for bar in found["bars"]] == ["peak memory of weights"]
    assert found["command"] == "python benchmarks/peers.py --device cpu --repeats 1 --nets mlp"
    assert found["machine"] in capsys.readouterr().out


def test_a_library_that_is_not_here_has_a_name_all_the_same(benchmark):
    peer = benchmark("peers").Peer("no-such-library", "mixture", lambda *_: None)
    assert peer.label == "no-such-library, mixture prior"
