"""`learn` that is killed, interrupted or run twice: the model stays whole, and the same command goes on."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tests.waves.data import blobs, digits
from ucb.waves import ArrayExamples, Model, Watcher, keeping, learn, reading

PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
from tests.waves.data import blobs, digits
from ucb.waves import learn, reading, trunks
trunks.FILTERS, reading.PORTION, reading.ROWS = 8, 32, 16
method, path = sys.argv[1:3]
wave = digits([2, 3], 1500) if method == "fixed" else blobs("cd", 400)
print("ready", flush=True)
learn(path, wave, "second", pause=0.0, epochs=None if method == "fixed" else 12)
print("done", flush=True)
"""


def launched(path, method="fixed", program=PROGRAM):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, method, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.fixture(params=["fixed", pytest.param("ucb-ng", marks=pytest.mark.slow)])
def method(request):
    return request.param


@pytest.fixture
def begun(tmp_path, small, monkeypatch, method):
    """A model of one wave, and its bytes once the second is learnt without any disturbance."""
    first = digits([0, 1], 20) if method == "fixed" else blobs("ab", 20)
    learn(tmp_path / "m.ucb", first, "first", method=method, epochs=1 if method == "ucb-ng" else None)
    whole = tmp_path / "whole.ucb"
    whole.write_bytes((tmp_path / "m.ucb").read_bytes())
    with launched(whole, method) as process:
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        assert process.wait(120) == 0, process.stderr.read()
    return tmp_path / "m.ucb", whole.read_bytes(), time.monotonic() - began


def test_ten_kills_at_random_moments_leave_the_model_whole_and_the_result_the_same(begun, method):
    path, expected, duration = begun
    before = path.read_bytes()
    moments, kills, went_on = random.Random(0), 0, 0
    while kills < 10 or (not went_on and kills < 40):
        with launched(path, method) as process:
            process.stdout.readline()
            with suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0, duration))
            process.kill()
        kills += process.returncode == -signal.SIGKILL
        assert path.read_bytes() in (before, expected)
        Model.open(path)
        if path.read_bytes() == expected:  # it came to its end before the kill: once more
            path.write_bytes(before)
        went_on += keeping.progress_file(path).exists()
    assert went_on > 0
    with launched(path, method) as process:
        assert process.wait(120) == 0, process.stderr.read()
    assert path.read_bytes() == expected
    assert not keeping.progress_file(path).exists()


class Stops(Watcher):
    """Interrupts after so many portions, and keeps what was said."""

    def __init__(self, portions):
        self.portions, self.said = portions, []

    def moved(self, done, total):
        self.portions -= 1
        if self.portions == 0:
            raise KeyboardInterrupt

    def noted(self, sentence):
        self.said.append(sentence)


@pytest.fixture
def portioned(small, monkeypatch):
    monkeypatch.setattr(reading, "PORTION", 16)
    monkeypatch.setattr(reading, "ROWS", 8)


@pytest.mark.usefixtures("portioned")
def test_an_interrupted_first_wave_goes_on_to_the_same_bits(tmp_path):
    wave = digits([0, 1], 60)
    learn(tmp_path / "whole", wave)
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "cut", wave, watcher=Stops(4), pause=0.0)
    assert not (tmp_path / "cut").exists()
    kept = keeping.progress_file(tmp_path / "cut").read_bytes()
    assert wave[0][0].numpy().tobytes() not in kept
    watcher = Stops(1000)
    learn(tmp_path / "cut", wave, watcher=watcher, pause=0.0)
    assert watcher.said == ["going on from cut.learning"]
    assert 1000 - watcher.portions < 108 / 16
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cut", "whole"]


@pytest.mark.usefixtures("portioned")
def test_other_data_and_damaged_progress_start_anew_with_a_remark(tmp_path):
    path = tmp_path / "m"
    for spoil, said in (False, "of other data"), (True, "damaged"):
        with pytest.raises(KeyboardInterrupt):
            learn(path, digits([0, 1], 60), watcher=Stops(3), pause=0.0)
        if spoil:
            kept = bytearray(keeping.progress_file(path).read_bytes())
            kept[len(kept) // 2] ^= 1
            keeping.progress_file(path).write_bytes(bytes(kept))
        watcher = Stops(1000)
        wave = digits([0, 1], 60, skip=0 if spoil else 60)
        learn(path, wave, watcher=watcher)
        assert said in watcher.said[0]
        fresh = tmp_path / f"fresh {spoil}"
        learn(fresh, wave)
        assert path.read_bytes() == fresh.read_bytes()
        path.unlink()


@pytest.mark.usefixtures("small")
def test_two_at_once_are_refused(tmp_path):
    path = tmp_path / "m"
    learn(path, blobs("ab", 10))
    before = path.read_bytes()
    with keeping.alone_with(path), pytest.raises(RuntimeError, match="another process is learning"):
        learn(path, blobs("cd", 10))
    assert path.read_bytes() == before
    learn(path, blobs("cd", 10))
    assert [each.name for each in tmp_path.iterdir()] == ["m"]


@pytest.mark.usefixtures("small")
def test_files_beside_the_model_links_and_permissions_are_left_alone(tmp_path):
    (tmp_path / "real.ucb.lock").write_text("somebody's")
    real, link = tmp_path / "real.ucb", tmp_path / "link.ucb"
    learn(real, blobs("ab", 10))
    real.chmod(0o600)
    link.symlink_to("real.ucb")
    learn(link, blobs("cd", 10))
    assert link.is_symlink()
    assert Model.open(real).classes == ["a", "b", "c", "d"]
    assert real.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "real.ucb.lock").read_text() == "somebody's"


@pytest.mark.usefixtures("small")
def test_a_failed_write_leaves_the_old_model(tmp_path, monkeypatch):
    path = tmp_path / "m"
    learn(path, blobs("ab", 10))
    digest = hashlib.sha256(path.read_bytes()).digest()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        learn(path, blobs("cd", 10))
    assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert [each.name for each in tmp_path.iterdir()] == ["m"]


@pytest.mark.usefixtures("small")
def test_ctrl_c_in_the_command_is_a_sentence_and_130(tmp_path):
    import numpy as np

    x, labels = digits([0, 1], 3000)
    np.savez(tmp_path / "wave.npz", x=x.numpy(), y=np.array(labels))
    program = "from ucb.waves import files, keeping\nkeeping.PAUSE = files.PAUSE = 0.0\n"
    program += "from ucb.cli.main import main\nimport sys\nprint('ready', flush=True)\nmain()"
    command = [sys.executable, "-c", program, "learn", str(tmp_path / "m.ucb"), str(tmp_path / "wave.npz")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes) as process:
        process.stdout.readline()
        deadline = time.monotonic() + 60
        while not keeping.lock_file(tmp_path / "m.ucb").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.startswith("interrupted: ")
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "m.ucb").exists()
    assert not keeping.lock_file(tmp_path / "m.ucb").exists()


def test_examples_in_memory_are_told_apart_by_content():
    from ucb.waves.sources import fingerprint

    one, other = (ArrayExamples(*blobs("ab", 5, seed)) for seed in (0, 1))
    assert fingerprint(one) == fingerprint(ArrayExamples(*blobs("ab", 5, 0)))
    assert fingerprint(one) != fingerprint(other)
