"""Runs that are killed, in processes of their own."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

PROGRAM = """
import sys
from pathlib import Path
from ucb import engine
folder = Path(sys.argv[1])
job = engine.Job("mnist-5split", sys.argv[2], tasks=2, net_options={"hidden": [16]},
                 training={"epochs": 2, "checkpoint_every": 5, "eval_samples": 2}, settings=eval(sys.argv[3]))
print("ready", flush=True)
engine.resume(folder) if (folder / "config.json").exists() else engine.start(job, folder)
"""
TIMES = ("seconds", "task_seconds", "peak_memory_bytes")


@contextmanager
def launched(folder, program=PROGRAM, **options):
    """A process that works on the run in ``folder``, at the moment where it begins."""
    command = [sys.executable, "-c", program, str(folder), "ucb", "{'samples': 2}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes, **options) as process:
        try:
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def outcome(process):
    """Exit code and error output of a process that comes to its end."""
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def finished(folder):
    with launched(folder) as process:
        code, errors = outcome(process)
    assert code == 0, errors
    return result(folder)


def result(folder):
    found = json.loads((folder / "result.json").read_text())
    return {key: value for key, value in found.items() if key not in TIMES}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The result of a run that nobody disturbed, and how long it worked."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    began = time.monotonic()
    return finished(folder), time.monotonic() - began


@pytest.mark.slow
def test_a_run_killed_at_twenty_random_moments_gives_the_same_result_to_the_last_bit(tmp_path, whole):
    expected, duration = whole
    moments = random.Random(0)
    kills = runs = 0
    while kills < 20:
        folder = tmp_path / f"run{runs}"
        runs += 1
        for _ in range(4):
            with launched(folder) as process, suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0, duration * 0.5))
            kills += process.returncode == -signal.SIGKILL
        assert finished(folder) == expected
        assert not list(folder.glob("*.part"))[1:]


@pytest.mark.parametrize("deed", ["inside a write", "before a rename", "after a rename"])
def test_a_kill_inside_a_checkpoint_write_changes_nothing(tmp_path, whole, deed):
    """The process kills itself at its eighth checkpoint, at a chosen line of the write."""
    trap = {
        "inside a write": "os.fsync = lambda d, f=os.fsync: (count(), f(d))",
        "before a rename": "Path.replace = lambda s, t, f=Path.replace: (count(), f(s, t))[1]",
        "after a rename": "Path.replace = lambda s, t, f=Path.replace: (f(s, t), count())[0]",
    }[deed]
    program = f"""
import os, signal
from pathlib import Path
calls = [0]
def count():
    calls[0] += 1
    if calls[0] == 8:
        os.kill(os.getpid(), signal.SIGKILL)
{trap}
{PROGRAM}
"""
    with launched(tmp_path / "run", program) as process:
        assert outcome(process)[0] == -signal.SIGKILL
    assert finished(tmp_path / "run") == whole[0]


def test_a_full_disk_ends_with_a_sentence_and_a_usable_checkpoint(tmp_path, whole):
    """No file may grow beyond the first checkpoint's size and a bit: a later, larger one does not fit."""
    folder = tmp_path / "run"

    def no_large_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    with launched(folder, preexec_fn=no_large_files) as process:
        code, errors = outcome(process)
    assert code != 0
    assert "File too large" in errors
    assert not list(folder.glob("*.part"))
    assert finished(folder) == whole[0]


def test_a_second_process_in_the_same_folder_is_refused(tmp_path):
    folder = tmp_path / "run"
    with launched(folder):
        while not (folder / "config.json").exists():
            time.sleep(0.01)
        with launched(folder) as second:
            code, errors = outcome(second)
    assert code != 0
    assert "another process is running in" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_saves_and_goes_on_to_the_same_result(tmp_path, whole, number):
    folder = tmp_path / "run"
    with launched(folder) as process:
        while not list(folder.glob("checkpoint-*")):
            time.sleep(0.01)
        process.send_signal(number)
        code, errors = outcome(process)
    assert code != 0
    assert "stopped in task" in errors
    assert finished(folder) == whole[0]
