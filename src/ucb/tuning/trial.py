"""Trying settings: the first two tasks are learnt, and their held-out data judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch

from ucb.data.streams import Stream
from ucb.data.streams.benchmarks import find
from ucb.engine import DivergedError, InterruptedRunError, Job, Observer, Run
from ucb.engine.orders import stopping_on_interrupt
from ucb.engine.side_by_side import each_side_by_side, obstacle_beside_others
from ucb.tuning.choice import Found, judged
from ucb.tuning.searched import Search
from ucb.tuning.space import Point

TASKS = 2


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


def tried(search: Search, run: Run, point: Point) -> Found:
    """Learn, and return what held-out data says. Settings that diverge have no score."""
    try:
        run.learn()
    except DivergedError as stop:
        return {"settings": point, "score": None, "failed": str(stop)}
    return judged(run, point, None if search.all_tasks else find(search.benchmark).tasks)


def try_together(search: Search, points: Sequence[Point]) -> Iterator[Found]:
    """Try several settings: on a GPU side by side, where no result changes by more than rounding. Errors come last."""
    first = run_of(search, points[0]) if len(points) > 1 else None
    if first is None or obstacle_beside_others(first) is not None:
        del first
        # Each is built just before it runs: some nets draw from PyTorch's own generator.
        for point in points:
            yield tried(search, run_of(search, point), point)
        return
    runs = {first: points[0]} | {run_of(search, point): point for point in points[1:]}
    with stopping_on_interrupt(list(runs)):  # a thread goes on after Ctrl-C until it is asked to stop
        outcomes = each_side_by_side(list(runs), lambda run: _tried_or_failed(search, run, runs[run]))
    failures = [each for each in outcomes if isinstance(each, Exception)]
    yield from (each for each in outcomes if not isinstance(each, Exception))
    if any(run.stopping for run in runs):
        raise InterruptedRunError("stopped after the last batch of the trials at hand")
    if failures:
        raise failures[0]


def _tried_or_failed(search: Search, run: Run, point: Point) -> Found | Exception:
    try:
        return tried(search, run, point)
    except Exception as error:
        return error


def try_alone(search: Search, threads: int, point: Point) -> Found:
    """Try settings in a process of their own."""
    torch.set_num_threads(threads)
    return tried(search, run_of(search, point), point)
