"""The way in. How many threads PyTorch has, and how they wait for each other, is told before it is loaded.

By default its threads wait in a busy loop of milliseconds. Where other programs want the cores too, a thread that waits
so takes time from the very one that it waits for, and an epoch takes many times as long. Here they go to sleep after
some microseconds.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
"""The standard's word, and how often GNU's library looks before it sleeps."""
THREADS = "OMP_NUM_THREADS"


def main() -> None:
    """Answer the command line."""
    share_the_machine()
    try:
        from ucb.cli.app import app

        app(prog_name="ucb")
    except KeyboardInterrupt:
        print("interrupted before anything began", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        sys.exit(end.code if write_the_rest() else end.code or 1)


def write_the_rest() -> bool:
    """Write what standard output and standard error still hold, and return whether they took it.

    What they did not take is given up: Python would try once more at its end, and make 120 of any exit status.
    """
    is_written = True
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            is_written = False
    return is_written


def share_the_machine() -> None:
    """Let threads wait asleep, and be no more than the cores that this process may use. The user's own words count."""
    if not any(name in os.environ for name in (*WAITING, "KMP_BLOCKTIME")):
        os.environ.update(WAITING)
    granted = count_granted_cores()
    if granted is not None and granted < _usable_cores():
        os.environ.setdefault(THREADS, str(granted))


def count_granted_cores(root: Path = CONTROL_GROUPS) -> int | None:
    """Return the cores' worth of time that a container may use, rounded up; None where there is no limit.

    A container sees all cores of the machine, and one thread for each would spend its time waiting for the others.
    """
    for files in ("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"):  # version 2, and 1
        try:
            quota, period = " ".join((root / name).read_text() for name in files).split()
            return max(1, math.ceil(int(quota) / int(period))) if int(quota) > 0 else None
        except (OSError, ValueError, ZeroDivisionError):  # there are none, or "max"
            continue
    return None


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
