"""Processes that never hear Ctrl-C, not even while they load: it reaches every process of a terminal at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Start processes that never hear Ctrl-C; this one hears it when they are started, and ends or stops them."""
    # A helper of Python's own is started with the first process, and older versions unblock the signal after that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
