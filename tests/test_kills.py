"""Runs and `learn` killed at random moments from a seed, 80 times each: nothing is lost, and the same command goes on.

Each process is a fork of one that has loaded everything, so that a kill hits the work and not the loading.
"""

import json
import os
import random
import signal
import time
from contextlib import contextmanager

import pytest

from tests.incremental.data import blobs, digits
from ucb import engine
from ucb.data.streams import load_mnist
from ucb.incremental import Model, editing, inputs, learn, trunks
from ucb.incremental.progress_file import progress_path

KILLS = 80
PER_RUN = 8
TIMES = ("seconds", "task_seconds", "peak_memory_bytes")
pytestmark = pytest.mark.slow


@contextmanager
def forked(work):
    """A process that does some work and leaves; its number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    yield child


def killed(work, after):
    """Whether the work was still under way when the kill came."""
    with forked(work) as child:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def finished(work):
    """Do the work in a process of its own, to its end; return how long it took."""
    began = time.monotonic()
    with forked(work) as child:
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return time.monotonic() - began


def result(folder):
    found = json.loads((folder / "result.json").read_text())
    return {key: value for key, value in found.items() if key not in TIMES}


def test_eighty_kills_of_runs(tmp_path):
    """A run that was killed several times ends with the result of one that nobody disturbed, bit for bit."""
    training = {"epochs": 1, "checkpoint_every": 5, "eval_samples": 1}
    settings, moments = {"samples": 1}, random.Random(0)
    job = engine.Job("mnist-5split", "ucb", tasks=2, net_options={"hidden": [16]}, training=training, settings=settings)

    def work(folder):
        if (folder / "config.json").exists():
            engine.resume(folder)
        else:
            engine.start(job, folder)

    load_mnist()  # here, so that no process has to
    duration = finished(lambda: work(tmp_path / "whole"))
    expected, kills, runs = result(tmp_path / "whole"), 0, 0
    while kills < KILLS:
        folder = tmp_path / f"run{runs}"
        runs += 1
        for _ in range(PER_RUN):
            kills += killed(lambda folder=folder: work(folder), moments.uniform(0, duration / PER_RUN * 2))
        finished(lambda folder=folder: work(folder))
        assert result(folder) == expected
        assert not list(folder.glob("*.part"))
    print(f"{kills} kills of {runs} runs: every result is the same")


@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
def test_eighty_kills_of_learn(tmp_path, monkeypatch, method):
    """The model is the old one or the new one, whole, and the same call goes on to the same bytes."""
    for module, name, value in (trunks, "FILTERS", 8), (inputs, "PORTION", 32), (inputs, "ROWS", 16):
        monkeypatch.setattr(module, name, value)
    fixed = method == "fixed"
    first, second = (digits([0, 1], 20), digits([2, 3], 1500)) if fixed else (blobs("ab", 20), blobs("cd", 400))
    path, whole, moments = tmp_path / "m.ucb", tmp_path / "whole.ucb", random.Random(1)
    learn(path, first, "first", method=method, epochs=None if fixed else 1)
    before = path.read_bytes()
    whole.write_bytes(before)

    def work(model):
        learn(model, second, "second", pause=0.0, epochs=None if fixed else 12)

    duration = finished(lambda: work(whole))
    expected, kills, replaced, went_on = whole.read_bytes(), 0, 0, 0
    while kills < KILLS // 2:
        kills += killed(lambda: work(path), moments.uniform(0, duration))
        assert path.read_bytes() in (before, expected)
        assert len(Model.open(path).waves) in (1, 2)
        went_on += progress_path(path).exists()
        if path.read_bytes() == expected:
            path.write_bytes(before)
            replaced += 1
    finished(lambda: work(path))
    assert path.read_bytes() == expected
    assert went_on
    print(
        f"{kills} kills of learn with {method}: {replaced} times it was done, {went_on} times it had progress to keep"
    )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.ucb", "whole.ucb"]


def test_forty_kills_of_unlearn_and_merge(tmp_path, monkeypatch):
    """A model is the one before or the one after, whole; a merged one is there, whole, or not at all."""
    monkeypatch.setattr(trunks, "FILTERS", 40)
    path, other, out = (tmp_path / name for name in ("m.ucb", "other.ucb", "out.ucb"))
    wave, moments = digits([2, 3], 600), random.Random(2)
    learn(path, digits([0, 1], 200), "first")
    learn(path, wave, "second", keep_sums=True)
    before = path.read_bytes()
    other.write_bytes(before)
    editing.unlearn(other, wave="second")
    after = other.read_bytes()
    with_data = finished(lambda: editing.unlearn(path, wave))
    assert path.read_bytes() == after, "with its data or with its sums, the same bytes remain"
    other.write_bytes(before)
    editing.unlearn(other, digits([0, 1], 200))
    second = finished(lambda: editing.merge([path, other], out))
    merged, kills = out.read_bytes(), 0
    while kills < KILLS // 4:
        path.write_bytes(before)
        kills += killed(lambda: editing.unlearn(path, wave), moments.uniform(0, with_data))
        assert path.read_bytes() in (before, after)
    editing.unlearn(path, wave) if path.read_bytes() == before else None
    while kills < KILLS // 2:
        out.unlink(missing_ok=True)
        kills += killed(lambda: editing.merge([path, other], out), moments.uniform(0, second))
        assert not out.exists() or out.read_bytes() == merged
    out.unlink(missing_ok=True)
    editing.merge([path, other], out)
    assert out.read_bytes() == merged
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.ucb", "other.ucb", "out.ucb"]
