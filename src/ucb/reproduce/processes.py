"""Runs in processes of their own, a few at a time, each on one thread.

A process is told to stop through its pipe, which also closes when this one dies: no run is left behind unseen. It then
stops after the batch at hand, with its state saved.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from ucb.engine import InterruptedRunError
from ucb.engine.deaf import deaf_to_ctrl_c
from ucb.reproduce.plan import Planned
from ucb.reproduce.running import Outcome, Watching, one


@dataclass(frozen=True)
class Running:
    """A process, and the pipe to it."""

    planned: Planned
    process: BaseProcess
    pipe: Connection


def in_processes(waiting: Sequence[Planned], watching: Watching, jobs: int) -> Iterator[Outcome]:
    """Carry out runs, ``jobs`` at a time; an interruption stops them all, and each saves its state."""
    queue, running = list(waiting), list[Running]()
    try:
        while queue or running:
            while queue and len(running) < jobs:
                running.append(_begun(queue.pop(0), watching))
            ready = wait([each.pipe for each in running])
            for each in [each for each in running if each.pipe in ready]:
                running.remove(each)
                yield _outcome(each)
    finally:
        for each in running:
            each.pipe.close()  # the word to stop
        for each in running:
            each.process.join()


def _begun(planned: Planned, watching: Watching) -> Running:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(planned, watching, theirs), name=f"ucb {planned.name}")
    with deaf_to_ctrl_c():  # this process tells it to stop
        process.start()
    theirs.close()
    return Running(planned, process, ours)


def _outcome(running: Running) -> Outcome:
    """Return what a process said; one that died silently is said to have."""
    try:
        said = running.pipe.recv()
    except EOFError:
        said = None
    running.process.join()
    running.pipe.close()
    if isinstance(said, InterruptedRunError):
        raise said
    if said is None:
        return Outcome(running.planned, None, f"its process ended with code {running.process.exitcode}")
    assert isinstance(said, Outcome)
    return said


def _work(planned: Planned, watching: Watching, pipe: Connection) -> None:
    os.setpgrp()
    torch.set_num_threads(1)
    threading.Thread(target=_stop_when_told, args=(pipe,), daemon=True).start()
    try:
        said: Outcome | InterruptedRunError = one(planned, watching)
    except InterruptedRunError as stop:
        said = stop
    with suppress(OSError):  # nobody may be there any more; the result is kept all the same
        pipe.send(said)


def _stop_when_told(pipe: Connection) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
