"""Runs what is missing and goes on with what was cut; one that fails does not stop the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ucb import engine
from ucb.devices import device_named
from ucb.engine import InterruptedRunError, Observer, Order
from ucb.engine.orders import CONFIG, RESULT
from ucb.reproduce.plan import Planned
from ucb.storage import ceilings, read_bytes, write_atomically

Watching = Callable[[Planned], Observer]
"""Makes the observer of a run. A process of its own must be able to import it by name."""


@dataclass(frozen=True)
class Outcome:
    """What became of a run: its result, or a sentence."""

    planned: Planned
    result: dict[str, Any] | None
    failure: str = ""


def nobody(_: Planned) -> Observer:
    """Watch nothing."""
    return Observer()


def carry_out(planned: Sequence[Planned], watching: Watching = nobody, jobs: int = 1) -> Iterator[Outcome]:
    """Do what there is to do, and yield each outcome as it comes.

    On a GPU the seeds of ``jobs`` rows learn side by side; on a CPU ``jobs`` processes share the runs.
    """
    waiting = [each for each in planned if each.to_do]
    if not waiting:
        return
    if device_named(waiting[0].job.device).type == "cuda":
        rows = [list(row) for _, row in groupby(waiting, key=lambda each: (each.table, each.row))]
        for first in range(0, len(rows), jobs):
            yield from side_by_side([each for row in rows[first : first + jobs] for each in row], watching)
    elif jobs > 1 and len(waiting) > 1:
        from ucb.reproduce.processes import in_processes

        yield from in_processes(waiting, watching, jobs)
    else:
        for each in waiting:
            yield one(each, watching)


def one(planned: Planned, watching: Watching = nobody) -> Outcome:
    """Start a run or go on with it, and keep its result. Only an interruption comes out as an error."""
    try:
        if (planned.folder / CONFIG).is_file():
            engine.resume(planned.folder, watching(planned))
        else:
            engine.start(planned.job, planned.folder, watching(planned))
        return kept(planned)
    except InterruptedRunError:
        raise
    except Exception as error:
        return Outcome(planned, None, sentence(error))


def side_by_side(planned: Sequence[Planned], watching: Watching = nobody) -> list[Outcome]:
    """Start runs or go on with them, all at the same time if the device allows it, and keep their results."""
    try:
        found = engine.go_on_with_all([Order(each.job, each.folder, watching(each)) for each in planned])
    except InterruptedRunError:
        for each in planned:
            if (each.folder / RESULT).is_file():
                kept(each)
        raise
    return [
        Outcome(each, None, sentence(result)) if isinstance(result, Exception) else kept(each)
        for each, result in zip(planned, found, strict=True)
    ]


def kept(planned: Planned) -> Outcome:
    """Copy a run's result to where results are kept."""
    try:
        planned.result.parent.mkdir(parents=True, exist_ok=True)
        found = read_bytes(planned.folder / RESULT, ceilings.JSON)
        write_atomically(planned.result, found)
        return Outcome(planned, json.loads(found))
    except (OSError, ValueError) as error:
        return Outcome(planned, None, sentence(error))


def sentence(error: Exception) -> str:
    """Say what went wrong; an error that is no sentence is named."""
    if isinstance(error, ValueError | TypeError | OSError | RuntimeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def log_of(planned: Planned) -> Path:
    """Return the file that keeps what a run says."""
    return planned.folder / "log.txt"
