"""What there is already of a run, and what of it stands in the way of running it now."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ucb.engine import Job
from ucb.engine.orders import CONFIG, RESULT, job_in
from ucb.reproduce.jobs import differences
from ucb.reproduce.result_files import damage, result_in

State = Literal["measured", "run, not kept", "cut", "missing", "other settings", "damaged"]


@dataclass(frozen=True)
class Found:
    """How far a run is."""

    state: State
    why: tuple[str, ...] = ()
    """With ``other settings``: in what it is not what would be run now. With ``damaged``: what is wrong."""
    remove: tuple[Path, ...] = ()
    """What must be gone before it can be run now."""


def found_of(job: Job, folder: Path, result: Path) -> Found:
    """Return how far a run is, from its kept result and its folder together."""
    kept = in_results(job, result)
    if kept is not None and kept.state == "measured":
        return kept
    there = [each for each in (kept, in_folder(job, folder)) if each is not None]
    hindering = [each for each in there if each.remove]
    if not hindering:
        return there[0] if there else Found("missing")
    why = dict.fromkeys(reason for each in hindering for reason in each.why)
    return Found(hindering[0].state, tuple(why), tuple(path for each in hindering for path in each.remove))


def in_results(job: Job, path: Path) -> Found | None:
    """Return what the kept result is."""
    if not path.is_file():
        return None
    result = result_in(path)
    if said := damage(result, job.seed):
        return Found("damaged", (f"{path} is {said}",), (path,))
    differs = differences(result["config"], job)
    return Found("other settings", tuple(differs), (path,)) if differs else Found("measured")


def in_folder(job: Job, folder: Path) -> Found | None:
    """Return how far the run in a folder is."""
    if not (folder / CONFIG).is_file():
        return None
    try:
        old = job_in(folder)
    except (OSError, ValueError, TypeError) as error:
        return Found("damaged", (str(error),), (folder,))
    if differs := differences(dataclasses.asdict(old), job):
        return Found("other settings", tuple(differs), (folder,))
    result = folder / RESULT
    if not result.is_file():
        if old.device != job.device:  # to go on elsewhere would not give the same figures
            return Found("other settings", (f"device was {old.device} and is {job.device}",), (folder,))
        return Found("cut")
    if said := damage(result_in(result), job.seed):
        return Found("damaged", (f"{result} is {said}",), (result,))
    return Found("run, not kept")
