"""Which of the settings that were tried is taken."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ucb.engine.run import Run

Found = dict[str, Any]
"""What held-out data says of some settings: they themselves, ``score`` (lower is better; None where they failed), the
standard ``error`` of the mean NLL right after learning, and the figures behind it."""

TWO_TASKS = (
    "projected NLL: that of each of the first two tasks right after it was learnt, plus the first one's rise while the "
    "second was learnt times the mean number of later tasks, (n - 1) / 2; of all settings that are above the lowest by "
    "at most the standard error of its NLL right after learning, the one whose first task rose least"
)
ALL_TASKS = "lowest mean NLL of all tasks after the last one was learnt"
CUT = "cut after the first task: others began better"
"""Why settings that Optuna gave up early have no score."""


def was_cut(found: Found) -> bool:
    """Whether settings were given up early: how good they are is not known."""
    return found.get("failed") == CUT


def judged(run: Run, settings: dict[str, Any], tasks: int | None) -> Found:
    """Return what a run of the first two tasks (``tasks`` is how many there will be) or of all (None) has shown."""
    own, last = run.at.judged_first, run.at.judged_last
    learnt = [each.nll for each in own]
    risen = statistics.mean(after.nll - before.nll for after, before in zip(last[:-1], own[:-1], strict=True))
    score = statistics.mean(each.nll for each in last) if tasks is None else projected(learnt, risen, tasks)
    if not math.isfinite(score):
        return {"settings": settings, "score": None, "failed": "held-out data gives them no score"}
    return {
        "settings": settings,
        "score": score,
        "error": math.hypot(*(each.nll_error for each in own)) / len(own),
        "learnt": learnt,
        "risen": risen,
        "acc": run.matrix.acc,
        "bwt": run.matrix.bwt,
        "seconds": run.at.seconds,
    }


def projected(learnt: Sequence[float], risen: float, tasks: int) -> float:
    """Return the mean NLL to expect after ``tasks`` tasks: two tasks show a single step of forgetting."""
    return statistics.mean(learnt) + max(risen, 0.0) * (tasks - 1) / 2


def choose(found: Sequence[Found], all_tasks: bool = False) -> Found:
    """Return the trial that the rule picks."""
    whole = [each for each in found if each["score"] is not None]
    if not whole:
        why = f": {found[0]['failed']}" if found else ""
        raise ValueError(f"no setting could be learnt with{why}")
    best = min(whole, key=lambda each: float(each["score"]))
    if all_tasks:
        return best
    near = [each for each in whole if each["score"] <= best["score"] + best["error"]]
    return min(near, key=lambda each: (each["risen"], each["score"]))
