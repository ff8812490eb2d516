"""Runs what is missing and goes on with what was cut; one that fails does not stop the others.

On a CPU runs may have processes of their own, a few at a time, each on one thread. A process is told to stop through
its pipe, which also closes when this one dies: no run is left behind unseen. It then stops after the batch at hand,
with its state saved. Each call leaves a file that says how long it took.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from ucb import engine
from ucb.checks import find_device
from ucb.engine import InterruptedRunError, Observer, PlannedRun
from ucb.engine.result import device_name
from ucb.engine.runner import CONFIG, RESULT, ignore_sigint
from ucb.experiments.reproduce.planning import TableRun
from ucb.storage import ceilings, read_bytes, write_atomically

CALLS = "calls"
"""Records of calls are in results/calls, a folder for each table."""
ObserverFactory = Callable[[TableRun], Observer]
"""Makes the observer of a run. A process of its own must be able to import it by name."""


@dataclass(frozen=True)
class RunOutcome:
    """What became of a run: its result, or a sentence."""

    planned: TableRun
    result: dict[str, Any] | None
    failure: str = ""


def observe_nothing(_: TableRun) -> Observer:
    """Watch nothing."""
    return Observer()


def carry_out(
    planned: Sequence[TableRun], observe: ObserverFactory = observe_nothing, jobs: int = 1
) -> Iterator[RunOutcome]:
    """Do what there is to do, and yield each outcome as it comes.

    On a GPU the seeds of ``jobs`` rows learn side by side; on a CPU ``jobs`` processes share the runs.
    """
    waiting = [each for each in planned if each.to_do]
    if not waiting:
        return
    if find_device(waiting[0].job.device).type == "cuda":
        rows = [list(row) for _, row in groupby(waiting, key=lambda each: (each.table, each.row))]
        for first in range(0, len(rows), jobs):
            yield from side_by_side([each for row in rows[first : first + jobs] for each in row], observe)
    elif jobs > 1 and len(waiting) > 1:
        yield from in_processes(waiting, observe, jobs)
    else:
        for each in waiting:
            yield carry_out_one(each, observe)


def carry_out_one(planned: TableRun, observe: ObserverFactory = observe_nothing) -> RunOutcome:
    """Start a run or go on with it, and keep its result. Only an interruption comes out as an error."""
    try:
        if (planned.folder / CONFIG).is_file():
            engine.resume(planned.folder, observe(planned))
        else:
            engine.start(planned.job, planned.folder, observe(planned))
        return keep_result(planned)
    except InterruptedRunError:
        raise
    except Exception as error:
        return RunOutcome(planned, None, sentence(error))


def side_by_side(planned: Sequence[TableRun], observe: ObserverFactory = observe_nothing) -> list[RunOutcome]:
    """Start runs or go on with them, all at the same time if the device allows it, and keep their results."""
    try:
        found = engine.carry_out_all([PlannedRun(each.job, each.folder, observe(each)) for each in planned])
    except InterruptedRunError:
        for each in planned:
            if (each.folder / RESULT).is_file():
                keep_result(each)
        raise
    return [
        RunOutcome(each, None, sentence(result)) if isinstance(result, Exception) else keep_result(each)
        for each, result in zip(planned, found, strict=True)
    ]


def keep_result(planned: TableRun) -> RunOutcome:
    """Copy a run's result to where results are kept."""
    try:
        planned.result.parent.mkdir(parents=True, exist_ok=True)
        found = read_bytes(planned.folder / RESULT, ceilings.JSON)
        write_atomically(planned.result, found)
        return RunOutcome(planned, json.loads(found))
    except (OSError, ValueError) as error:
        return RunOutcome(planned, None, sentence(error))


def sentence(error: Exception) -> str:
    """Say what went wrong; an error that is no sentence is named."""
    if isinstance(error, ValueError | TypeError | OSError | RuntimeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def in_processes(waiting: Sequence[TableRun], observe: ObserverFactory, jobs: int) -> Iterator[RunOutcome]:
    """Carry out runs, ``jobs`` at a time; an interruption stops them all, and each saves its state."""
    queue, running = list(waiting), dict[Connection, tuple[TableRun, BaseProcess]]()
    try:
        while queue or running:
            while queue and len(running) < jobs:
                planned = queue.pop(0)
                pipe, process = _begin(planned, observe)
                running[pipe] = planned, process
            ready = wait(list(running))
            for pipe in [pipe for pipe in running if pipe in ready]:
                yield _receive(pipe, *running.pop(pipe))
    finally:
        for pipe in running:
            pipe.close()  # the word to stop
        for _, process in running.values():
            process.join()


def _begin(planned: TableRun, observe: ObserverFactory) -> tuple[Connection, BaseProcess]:
    """Start a run in a process of its own; return the pipe to it, and the process."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(planned, observe, theirs), name=f"ucb {planned.name}")
    with ignore_sigint():  # this process tells it to stop
        process.start()
    theirs.close()
    return ours, process


def _receive(pipe: Connection, planned: TableRun, process: BaseProcess) -> RunOutcome:
    """Return the outcome that a process sends; one that died without a word has failed."""
    said: RunOutcome | InterruptedRunError | None = None
    with suppress(EOFError):
        said = pipe.recv()
    process.join()
    pipe.close()
    if isinstance(said, InterruptedRunError):
        raise said
    return said or RunOutcome(planned, None, f"its process ended with code {process.exitcode}")


def _work(planned: TableRun, observe: ObserverFactory, pipe: Connection) -> None:
    os.setpgrp()
    torch.set_num_threads(1)
    threading.Thread(target=_stop_when_told, args=(pipe,), daemon=True).start()
    try:
        said: RunOutcome | InterruptedRunError = carry_out_one(planned, observe)
    except InterruptedRunError as stop:
        said = stop
    with suppress(OSError):  # the parent may have ended; the result is kept all the same
        pipe.send(said)


def _stop_when_told(pipe: Connection) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


class CallRecord:
    """A file that is written when a call begins, and again as each run ends: a call that is cut leaves it too."""

    def __init__(self, table: str, planned: Sequence[TableRun], jobs: int, results: Path) -> None:
        waiting = [each for each in planned if each.to_do]
        now = datetime.now(UTC)
        self.path = _claim_path(results / CALLS / table, now)
        self.values: dict[str, Any] = {
            "table": table,
            "begun": now.isoformat(timespec="seconds"),
            "device": device_name(find_device(waiting[0].job.device)),
            "jobs": jobs,
            "asked": [each.name for each in waiting],
            "ended": {},
            "failed": {},
            "is_whole": False,
            "seconds": 0.0,
        }
        self._clock = time.monotonic()
        self._write()

    def add(self, outcome: RunOutcome) -> None:
        """Note a run that ended, with the seconds that it counted itself (also those of earlier calls), or failed."""
        if outcome.result is None:
            self.values["failed"][outcome.planned.name] = outcome.failure
        else:
            self.values["ended"][outcome.planned.name] = outcome.result.get("seconds")
        self._write()

    def close(self, *, is_whole: bool) -> None:
        """Note the wall time of the call, and whether it came to its end."""
        self.values["is_whole"] = is_whole
        self._write()

    def _write(self) -> None:
        self.values["seconds"] = time.monotonic() - self._clock
        write_atomically(self.path, (json.dumps(self.values, indent=1) + "\n").encode())


def _claim_path(folder: Path, now: datetime) -> Path:
    """Make the file of a call, named after its time, with a number where others began in the same second."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = (folder / f"{now:%Y%m%d-%H%M%S}-{number}.json" for number in count(1))
    while True:
        with suppress(FileExistsError):
            path = next(paths)
            path.open("x").close()  # of several processes only one makes it
            return path
