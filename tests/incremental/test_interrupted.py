"""`learn` that is killed, interrupted or run twice: the model stays whole, and the same command goes on."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.incremental.data import blobs, digits
from tests.support import ask, sentence
from ucb.cli import model as commands
from ucb.engine import checkpoint
from ucb.incremental import ArrayExamples, Model, inputs, learn, learning
from ucb.incremental.progress_file import lock_model, lock_path, progress_path
from ucb.observer import Observer

PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
from tests.incremental.data import blobs, digits
from ucb.incremental import inputs, learn, trunks
trunks.FILTERS, inputs.PORTION, inputs.ROWS = 8, 32, 16
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
        went_on += progress_path(path).exists()
    assert went_on > 0
    with launched(path, method) as process:
        assert process.wait(120) == 0, process.stderr.read()
    assert path.read_bytes() == expected
    assert not progress_path(path).exists()


class Stops(Observer):
    """Interrupts after a share of the work, if one is given, and keeps what was said and where the work began."""

    def __init__(self, share=1.0):
        self.share, self.began, self.said = share, None, []

    def moved(self, done, total):
        self.began = done / total if self.began is None else self.began
        if done > self.share * total:
            raise KeyboardInterrupt

    def noted(self, sentence):
        self.said.append(sentence)


@pytest.fixture
def portioned(small, monkeypatch):
    monkeypatch.setattr(inputs, "PORTION", 16)
    monkeypatch.setattr(inputs, "ROWS", 8)


@pytest.mark.usefixtures("portioned")
def test_an_interrupted_first_wave_goes_on_to_the_same_bits(tmp_path):
    wave = digits([0, 1], 60)
    learn(tmp_path / "whole", wave)
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "cut", wave, observer=Stops(0.8), pause=0.0)
    assert not (tmp_path / "cut").exists()
    kept = progress_path(tmp_path / "cut").read_bytes()
    assert wave[0][0].numpy().tobytes() not in kept
    watcher = Stops()
    learn(tmp_path / "cut", wave, observer=watcher, pause=0.0)
    assert watcher.said == ["going on from cut.learning"]
    assert watcher.began > 0.5
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cut", "whole"]


def spoilt(path, change):
    """Change the state that is kept, and sign it again."""
    state = checkpoint.unpack(path.read_bytes()[32:])
    change(state)
    content = checkpoint.pack(state)
    path.write_bytes(hashlib.sha256(content).digest() + content)


def flipped(path):
    kept = bytearray(path.read_bytes())
    kept[len(kept) // 2] ^= 1
    path.write_bytes(bytes(kept))


def test_an_interrupted_wave_that_goes_on_with_other_kernels_says_so(tmp_path):
    wave, path = digits([0, 1], 80), tmp_path / "m"  # three batches an epoch
    with pytest.raises(KeyboardInterrupt):
        learn(path, wave, method="ucb-ng", epochs=8, observer=Stops(0.9), pause=0.0)
    spoilt(progress_path(path), lambda state: state["run"]["progress"].update(kernels=["woven by hand"]))
    watcher = Stops()
    learn(path, wave, method="ucb-ng", epochs=8, observer=watcher, pause=0.0)
    went_on, others = watcher.said
    assert went_on == "going on from m.learning"
    assert "than up to here, woven by hand: the figures will not be those of a run that was never cut" in others


STALE = {
    "is of other data": None,
    "is of another version of ucb": lambda path: spoilt(path, lambda state: state["identity"].update(version="0.0.1")),
    "is of an earlier state of the model": lambda path: spoilt(path, lambda state: state["identity"].update(model="0")),
    "is of other settings": lambda path: spoilt(path, lambda state: state["identity"].update(seed=7)),
    "is damaged": flipped,
    "is damaged ": lambda path: path.write_bytes(b""),
    "is damaged  ": lambda path: spoilt(path, lambda state: state.pop("identity")),
    "is damaged   ": lambda path: path.write_bytes(b"somebody's notes, far longer than a hash can be"),
}


@pytest.mark.usefixtures("portioned")
@pytest.mark.parametrize("said", STALE)
def test_progress_that_is_of_no_use_is_named_and_learning_starts_anew(tmp_path, said):
    path, wave = tmp_path / "m", digits([0, 1], 60)
    with pytest.raises(KeyboardInterrupt):
        learn(path, wave, observer=Stops(0.75), pause=0.0)
    if STALE[said] is None:
        wave = digits([0, 1], 60, skip=60)
    else:
        STALE[said](progress_path(path))
    watcher = Stops()
    learn(path, wave, observer=watcher, pause=0.0)
    what = f"m.learning, left by a learn that was interrupted, {said.strip()}: learning starts anew"
    assert watcher.said == [what]
    learn(tmp_path / "fresh", wave)
    assert path.read_bytes() == (tmp_path / "fresh").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["fresh", "m"]


@pytest.mark.usefixtures("portioned")
def test_progress_that_cannot_be_removed_does_not_spoil_a_wave_that_is_learnt(tmp_path):
    progress_path(tmp_path / "m").mkdir()
    watcher = Stops()
    learn(tmp_path / "m", digits([0, 1], 60), observer=watcher)
    assert len(watcher.said) == 1
    assert "m.learning, left by a learn that was interrupted, cannot be read (Is a directory)" in watcher.said[0]
    assert Model.open(tmp_path / "m").classes == ["0", "1"]


@pytest.mark.usefixtures("portioned")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_nobody_reads_the_progress_who_may_not_read_the_model(tmp_path, mode, monkeypatch):
    """Neither when it is in place nor while it is written, whatever a kill has left there."""
    path, seen = tmp_path / "m", []
    learn(path, digits([0, 1], 20))
    path.chmod(mode)
    progress = progress_path(path)
    for each in path, progress:
        each.with_name(each.name + ".part").write_bytes(b"left by a kill")
        each.with_name(each.name + ".part").chmod(0o666)
    whole = os.fsync

    def watched(number):
        seen.append(os.fstat(number).st_mode & 0o777)
        whole(number)

    monkeypatch.setattr(os, "fsync", watched)
    with pytest.raises(KeyboardInterrupt):
        learn(path, digits([2, 3], 60), observer=Stops(0.8), pause=0.0)
    assert progress.stat().st_mode & 0o777 == 0o600
    learn(path, digits([2, 3], 60), pause=0.0)
    assert path.stat().st_mode & 0o777 == mode
    folder = tmp_path.stat().st_mode & 0o777
    assert set(seen) == {0o600, folder}
    assert [each.name for each in tmp_path.iterdir()] == ["m"]


@pytest.mark.usefixtures("small")
def test_two_at_once_are_refused(tmp_path):
    path = tmp_path / "m"
    learn(path, blobs("ab", 10))
    before = path.read_bytes()
    with lock_model(path), pytest.raises(RuntimeError, match="another process is learning"):
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
    with pytest.raises(OSError, match="No space left") as error:
        learn(path, blobs("cd", 10))
    assert error.value.filename == str(path)
    assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert [each.name for each in tmp_path.iterdir()] == ["m"]


@pytest.mark.usefixtures("small")
def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch):
    path, table = tmp_path / "m.ucb", tmp_path / "wave.csv"
    learn(path, blobs("ab", 10))
    table.write_text("label,p,q,r,s,t,u\n" + "".join(f"{'cd'[n % 2]},{n},{n % 5},1,2,3,4\n" for n in range(20)))
    whole = os.open

    def refuse(file, flags, *others, **options):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied", str(file))
        return whole(file, flags, *others, **options)

    monkeypatch.setattr(os, "open", refuse)  # root may write everywhere
    assert sentence(ask("learn", path, table), 1) == f"error: nothing can be written beside {path}: Permission denied\n"
    out = tmp_path / "m.onnx"
    assert sentence(ask("export", path, out), 1) == f"error: {out}.part: Permission denied\n"


@pytest.mark.usefixtures("small")
def test_ctrl_c_in_the_command_is_a_sentence_and_130(tmp_path):
    import numpy as np

    x, labels = digits([0, 1], 3000)
    np.savez(tmp_path / "wave.npz", x=x.numpy(), y=np.array(labels))
    # A shell's background jobs, and whoever they start, ignore Ctrl-C.
    program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from ucb.incremental import learning, progress_file\n"
    program += "progress_file.PAUSE = learning.PAUSE = 0.0\n"
    program += "from ucb.cli.main import main\nimport sys\nprint('ready', flush=True)\nmain()"
    command = [sys.executable, "-c", program, "learn", str(tmp_path / "m.ucb"), str(tmp_path / "wave.npz")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes) as process:
        process.stdout.readline()
        deadline = time.monotonic() + 60
        while not lock_path(tmp_path / "m.ucb").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.startswith("interrupted: ")
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "m.ucb").exists()
    assert not lock_path(tmp_path / "m.ucb").exists()


def raises(*_, **__):
    raise KeyboardInterrupt


def then_raises(deed):
    def both(*words, **options):
        deed(*words, **options)
        raise KeyboardInterrupt

    return both


MOMENTS = {
    "before it is replaced": (Path, "replace", lambda deed: raises, False),
    "while permissions are copied": (shutil, "copymode", lambda deed: raises, False),
    "just after it is replaced": (Path, "replace", then_raises, True),
    "before the progress is removed": (learning, "remove_progress", lambda deed: raises, True),
    "before the report is printed": (commands, "show_wave", lambda deed: raises, True),
}


@pytest.mark.usefixtures("portioned")
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_while_the_model_is_replaced_leaves_one_of_the_two_and_says_which(tmp_path, monkeypatch, moment, linked):
    """The same wave that an earlier Ctrl-C cut short, so that its progress is there too."""
    where, name, change, learnt = MOMENTS[moment]
    path, table = tmp_path / "m.ucb", tmp_path / "wave.csv"
    learn(path, blobs("ab", 20))
    table.write_text("label,p,q,r,s,t,u\n" + "".join(f"{'cd'[n % 2]},{n},{n % 5},1,2,3,4\n" for n in range(60)))
    if linked:
        (tmp_path / "link.ucb").symlink_to("m.ucb")
    with pytest.raises(KeyboardInterrupt):
        learn(path, table, observer=Stops(0.75), pause=0.0)
    before, progress = path.read_bytes(), progress_path(path)
    assert progress.exists()
    with monkeypatch.context() as patch:
        patch.setattr(where, name, change(getattr(where, name)))
        answer = ask("learn", tmp_path / "link.ucb" if linked else path, table)
    *said, last = answer.err.splitlines()
    assert (answer.code, answer.out, said) == (130, "", ["going on from m.ucb.learning"])
    assert Model.open(path).classes == ["a", "b", *("cd" if learnt else "")]
    if learnt:
        assert last.startswith("interrupted, but the wave is learnt: ")
        assert last.endswith(".ucb has it")
        assert not progress.exists()
    else:
        assert last.endswith(".ucb is as it was; the same command goes on where it stopped")
        assert path.read_bytes() == before
        assert ask("learn", path, table).code == 0
    assert {each.name for each in tmp_path.iterdir()} - {"link.ucb"} == {"m.ucb", "wave.csv"}


def test_examples_in_memory_are_told_apart_by_content():
    from ucb.data.readers import fingerprint

    one, other = (ArrayExamples(*blobs("ab", 5, seed)) for seed in (0, 1))
    assert fingerprint(one) == fingerprint(ArrayExamples(*blobs("ab", 5, 0)))
    assert fingerprint(one) != fingerprint(other)
