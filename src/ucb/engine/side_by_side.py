"""Several runs in one process: on a GPU each has a thread and a stream of its own, and they share the chip.

A small net's step leaves most of a GPU idle, and processes on one GPU only take turns. Runs of one kind, seeds say,
take their steps together where the method allows it, through a leading axis of runs: each comes out as it would alone,
but for the rounding of sums. All others do exactly what they would do alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import nn

from ucb.engine.precision import multiplying_in
from ucb.engine.run import Run
from ucb.engine.stack import kind_of
from ucb.engine.team import Team

Result = TypeVar("Result")

TEAMS_ON = ("cuda",)
"""Kinds of devices on which steps are taken together."""


def obstacle_beside_others(run: Run, others: Sequence[Run] = ()) -> str | None:
    """Say why a run cannot learn beside others, and beside these, with the same result, or None."""
    if run.device.type != "cuda":
        return "a CPU's cores are busy with one"
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in run.method.net.modules()):
        return "dropout draws from PyTorch's one generator"
    if others and run.training.precision != others[0].training.precision:
        return f"how PyTorch multiplies is one setting, and others beside it have {others[0].training.precision}"
    return None


def each_side_by_side(runs: Sequence[Run], work: Callable[[Run], Result]) -> list[Result]:
    """Do ``work`` for every run, all at once. A run that fails does not stop the others; its error is raised last."""
    for team in teams_of(runs):
        for run in team.present:
            run.team = team
    # How PyTorch multiplies is one setting for the whole process: it must last until all are done.
    with (
        multiplying_in(runs[0].training.precision, runs[0].device),
        ThreadPoolExecutor(len(runs), thread_name_prefix="ucb-run") as pool,
    ):
        waiting = [pool.submit(_in_its_team, run, work) for run in runs]
    return [done.result() for done in waiting]


def _in_its_team(run: Run, work: Callable[[Run], Result]) -> Result:
    try:
        return work(run)
    finally:
        if run.team is not None:
            run.team.leave(run)
            run.team = None


def teams_of(runs: Sequence[Run]) -> list[Team]:
    """Return the runs that can take their steps together, those of each kind as a team."""
    kinds: dict[Hashable, list[Run]] = {}
    for run in runs:
        kind = kind_of(run.method) if _may_join(run) else None
        if kind is not None:
            kinds.setdefault((kind, run.training, run.stream.name, run.device), []).append(run)
    return [Team(members) for members in kinds.values() if len(members) > 1]


def _may_join(run: Run) -> bool:
    """Say whether a run's training lets it take steps with others: on a GPU, as graphs, in single precision."""
    training = run.training
    allowed = training.together and training.graphs and training.precision != "bf16"
    return allowed and run.device.type in TEAMS_ON and run.stream.scenario.boundaries and not run.method.is_joint
