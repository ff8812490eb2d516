"""Several runs in one process: on a GPU each has a thread and a stream of its own, and they share the chip.

A small net's step leaves most of a GPU idle, and processes on one GPU only take turns. Each run does exactly what it
would do alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import nn

from ucb.engine.precision import multiplying_in
from ucb.engine.run import Run

Result = TypeVar("Result")


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
    # How PyTorch multiplies is one setting for the whole process: it must last until all are done.
    with (
        multiplying_in(runs[0].training.precision, runs[0].device),
        ThreadPoolExecutor(len(runs), thread_name_prefix="ucb-run") as pool,
    ):
        waiting = [pool.submit(work, run) for run in runs]
    return [done.result() for done in waiting]
