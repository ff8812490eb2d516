"""Going through a space of settings: all of them, or with Optuna those that look best."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from functools import partial
from multiprocessing import active_children, get_context, parent_process

import torch

from ucb.engine.deaf import deaf_to_ctrl_c
from ucb.tuning.choice import Found
from ucb.tuning.record import Record
from ucb.tuning.searched import Search
from ucb.tuning.space import Point
from ucb.tuning.trial import try_alone, try_together

Heard = Callable[[Found], None]
"""Is told of every trial as it ends."""


def by_grid(record: Record, points: Sequence[Point], jobs: int, heard: Heard) -> None:
    """Try every point that the record lacks, ``jobs`` at a time."""
    left = [point for point in points if record.lacks(point)]
    with closing(_all_found(record.search, left, jobs)) as trials:
        for found in trials:
            record.add(found)
            heard(found)


def _all_found(search: Search, points: Sequence[Point], jobs: int) -> Generator[Found]:
    if search.device.startswith("cuda") or jobs == 1:
        for first in range(0, len(points), jobs):
            yield from try_together(search, points[first : first + jobs])
        return
    threads = max(1, torch.get_num_threads() // jobs)
    others = active_children()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_end_with_the_parent) as pool:
        try:
            with deaf_to_ctrl_c():
                waiting = [pool.submit(partial(try_alone, search, threads), point) for point in points]
            yield from (done.result() for done in as_completed(waiting))
        except BaseException:  # Ctrl-C too: what is not done is tried again another time
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                if child not in others:
                    child.terminate()
            raise


def _end_with_the_parent() -> None:
    """Let this process end when its parent has ended, however that came: nobody waits for its trials then."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
