"""Trying settings: one point, all points of a grid, and points beyond a grid whose best one lies at its edge.

A trial learns the first two tasks, or all, and their held-out data judges.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from multiprocessing import active_children, get_context, parent_process
from typing import Any

import torch

from ucb.data.streams import Stream
from ucb.data.streams.benchmarks import find
from ucb.engine import DivergedError, InterruptedRunError, Job, Observer, Run
from ucb.engine.runner import find_side_by_side_obstacle, ignore_sigint, run_side_by_side, stop_on_interrupt
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import Point, Search, Trial, choose, refuse_points, score_run, values_of

TASKS = 2
OnTrial = Callable[[Trial], None]
"""Is called with every trial as it ends."""


def without_test_data(stream: Stream) -> Stream:
    """Return the stream with each task's test data replaced by its validation data."""
    tasks = tuple(dataclasses.replace(task, test=task.validation) for task in stream.tasks)
    return dataclasses.replace(stream, tasks=tasks)


def run_of(search: Search, point: Point, observer: Observer | None = None) -> Run:
    """Return the run that tries some settings."""
    job = Job(
        search.benchmark,
        search.method,
        search.seed,
        tasks=None if search.all_tasks else TASKS,
        single_head=search.single_head,
        apart=search.apart,
        task_told=search.task_told,
        blur=search.blur,
        net=search.net,
        net_options=search.net_options,
        training={"epochs": 1 if search.blur is not None else search.epochs, "eval_samples": 10},
        settings=point,
        device=search.device,
    )
    return job.run(observer=observer, stream=without_test_data(job.stream()))


def try_point(search: Search, point: Point, observer: Observer | None = None) -> Trial:
    """Try some settings by themselves."""
    return try_run(search, run_of(search, point, observer), point)


def try_run(search: Search, run: Run, point: Point) -> Trial:
    """Learn, and return what held-out data says. Settings that diverge have no score."""
    try:
        run.learn()
    except DivergedError as stop:
        return {"settings": point, "score": None, "failed": str(stop)}
    return score_run(run, point, None if search.all_tasks else find(search.benchmark).tasks)


def try_together(search: Search, points: Sequence[Point]) -> Iterator[Trial]:
    """Try several settings: on a GPU side by side, where no result changes by more than rounding. Errors come last."""
    first = run_of(search, points[0]) if len(points) > 1 else None
    if first is None or find_side_by_side_obstacle(first) is not None:
        del first
        # Each is built just before it runs: some nets draw from PyTorch's own generator.
        for point in points:
            yield try_point(search, point)
        return
    runs = {first: points[0]} | {run_of(search, point): point for point in points[1:]}

    def try_one(run: Run) -> Trial | Exception:
        try:
            return try_run(search, run, runs[run])
        except Exception as error:
            return error

    with stop_on_interrupt(list(runs)):  # a thread goes on after Ctrl-C until it is asked to stop
        outcomes = run_side_by_side(list(runs), try_one)
    yield from (each for each in outcomes if not isinstance(each, Exception))
    if any(run.stopping for run in runs):
        raise InterruptedRunError("stopped after the last batch of the trials at hand")
    for each in outcomes:
        if isinstance(each, Exception):
            raise each


def search_grid(record: TrialRecord, points: Sequence[Point], jobs: int, on_trial: OnTrial) -> None:
    """Try every point that the record lacks, ``jobs`` at a time."""
    left = [point for point in points if record.lacks(point)]
    with closing(_try_all(record.search, left, jobs)) as trials:
        for trial in trials:
            record.add(trial)
            on_trial(trial)


def _try_all(search: Search, points: Sequence[Point], jobs: int) -> Generator[Trial]:
    if search.device.startswith("cuda") or jobs == 1:
        for first in range(0, len(points), jobs):
            yield from try_together(search, points[first : first + jobs])
        return
    threads = max(1, torch.get_num_threads() // jobs)
    others = active_children()
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_process, (threads,)) as pool:
        try:
            with ignore_sigint():
                waiting = [pool.submit(try_point, search, point) for point in points]
            yield from (done.result() for done in as_completed(waiting))
        except BaseException:  # Ctrl-C too: what is not done is tried again another time
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                if child not in others:
                    child.terminate()
            raise


def _begin_process(threads: int) -> None:
    """Let this process use so many threads, and end when its parent has ended: its trials are of no use then."""
    torch.set_num_threads(threads)
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def widen_search(
    record: TrialRecord, points: Sequence[Point], rounds: int, jobs: int, on_trial: OnTrial
) -> list[Point]:
    """Try points beyond those that have been tried, at most ``rounds`` times; return all.

    Each time those settings of the point with the lowest score that are the smallest or the largest tried go one step
    further, alone and together. It ends early when that point lies inside, nothing beyond is allowed, or a round found
    no lower score. The score alone leads, also where the rule takes the least forgetting near the lowest: that would
    lead to ever smaller rates, away from what is best.
    """

    def lowest() -> Trial:
        return choose([trial for point in tried if (trial := record.find(point)) is not None], all_tasks=True)

    tried = list(points)
    best = lowest()
    for _ in range(rounds):
        new = [point for point in points_beyond(tried, best["settings"]) if is_allowed(record.search.method, point)]
        if not new:
            break
        search_grid(record, new, jobs, on_trial)
        tried += new
        before, best = best, lowest()
        if best["score"] >= before["score"]:
            break
    return tried


def points_beyond(points: Sequence[Point], best: Point) -> list[Point]:
    """Return the points one step outside the edges that ``best`` lies at, as far as these are numbers above 0."""
    tried = values_of(points)
    steps = {name: [value, *value_beyond(value, tried[name])] for name, value in best.items()}
    around = (dict(zip(steps, values, strict=True)) for values in itertools.product(*steps.values()))
    return [point for point in around if point not in points]


def value_beyond(value: Any, values: Sequence[Any]) -> list[Any]:
    """Return the value a step outside ``values``, if this one is at their edge: as far again as the last step, rounded.

    Steps are factors, and values have one digit: 0.003 comes before 0.01 and 0.03.
    """
    if len(values) < 2 or not all(isinstance(each, float) and each > 0 for each in values):
        return []
    inner = {values[0]: values[1], values[-1]: values[-2]}.get(value)
    if inner is None:
        return []
    outside = float(f"{value * value / inner:.1g}")
    return [outside] if not values[0] <= outside <= values[-1] else []


def is_allowed(method: str, point: Point) -> bool:
    """Whether the method can be set so."""
    try:
        refuse_points(method, [point])
    except ValueError:
        return False
    return True
