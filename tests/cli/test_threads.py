"""How a command's threads wait, and how many they are."""

import os
import subprocess
import sys
import time

import pytest

from tests.support import launched
from ucb.cli import main as threads

BUSY = "import os\nwhile os.getppid() == {}:\n    pass"
"""Keeps a core busy for as long as the test is there."""


def told(*words, **variables):
    """What GNU's library for threads says of itself in a process of the command."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    environment |= {"OMP_DISPLAY_ENV": "verbose", **variables}
    command = [sys.executable, "-m", "ucb", "list", "methods"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("PyTorch has threads of another library here")
    lines = [line.split("=") for line in done.stderr.splitlines() if line.count("=") == 1]
    return {name.split()[-1]: value.strip(" '") for name, value in lines}


def test_threads_of_a_command_wait_asleep():
    found = told()
    assert (found["OMP_WAIT_POLICY"], found["GOMP_SPINCOUNT"]) == ("PASSIVE", "1000")


def test_the_user_s_own_words_count():
    found = told(OMP_WAIT_POLICY="ACTIVE", OMP_NUM_THREADS="3")
    assert (found["OMP_WAIT_POLICY"], found["OMP_NUM_THREADS"]) == ("ACTIVE", "3")
    assert int(found["GOMP_SPINCOUNT"]) > 1000


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_the_share_of_a_container(tmp_path, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert threads.count_granted_cores(tmp_path) == cores


@pytest.mark.parametrize(("granted", "expected"), [(1, "1"), (None, None), (10**6, None)])
def test_threads_are_no_more_than_the_share(monkeypatch, granted, expected):
    monkeypatch.setattr(threads, "count_granted_cores", lambda: granted)
    monkeypatch.setattr(threads, "_usable_cores", lambda: 64)
    monkeypatch.setattr(os, "environ", {})
    threads.share_the_machine()
    assert os.environ.get("OMP_NUM_THREADS") == expected


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_run_beside_two_busy_processes_takes_three_times_as_long_at_most(tmp_path):
    """A fair share alone is twice as long; with threads that wait in a busy loop it was nine times."""
    cores = sorted(os.sched_getaffinity(0))[:2]

    def seconds(name):
        began = time.monotonic()
        words = ("run", "mnist-5split", "--tasks", 1, "--epochs", 1, "--out", tmp_path / name)
        with launched(*words, threads=2, preexec_fn=lambda: os.sched_setaffinity(0, cores)) as process:
            process.communicate(timeout=600)
        assert process.returncode == 0
        return time.monotonic() - began

    seconds("first")  # compiles what is to be compiled
    quiet = min(seconds("quiet"), seconds("quiet again"))
    busy = [subprocess.Popen([sys.executable, "-c", BUSY.format(os.getpid())]) for _ in cores]
    try:
        for each, core in zip(busy, cores, strict=True):
            os.sched_setaffinity(each.pid, {core})
        beside = min(seconds("beside"), seconds("beside again"))
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert beside <= 3 * quiet, f"{quiet:.1f} s alone, {beside:.1f} s beside two others"
