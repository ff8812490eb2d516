"""The parts of the speed benchmarks that do not depend on the machine."""

import json
import statistics
import sys
from pathlib import Path

import pytest
import torch


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


def test_the_documents_show_a_gpus_figures_once_there_are_some(benchmark, tmp_path, monkeypatch):
    write_docs = benchmark("write_docs")
    text = "before\n<!-- figures: step-gpu -->\nnot yet\n<!-- end -->\nafter"
    monkeypatch.setattr(write_docs, "result_file", lambda name: tmp_path / f"{name}.json")
    assert write_docs.written(text) == text
    row = {"ms": [0.5], "median": 0.5, "of": {"1 net": None}}
    bar = {"row": "weights", "of": None, "limit": 0.3, "said": "0.30 ms", "value": 0.5, "holds": False}
    group = {"title": "A net", "rows": {"weights": row}, "bars": [bar]}
    found = {"nets": {"mlp": group}, "kernels": "K", "machine": "M"}
    (tmp_path / "step-gpu.json").write_text(json.dumps(found))
    made = write_docs.written(text)
    assert "A net:\n\n| step | ms | of 1 net | bar |\n| --- | --- | --- | --- |\n" in made
    assert "| weights | 0.500 | - | 0.30 ms: MISSED |\n" in made
    assert "not yet" not in made
    assert made.endswith("Kernels: K. Machine: M.\n<!-- end -->\nafter")
