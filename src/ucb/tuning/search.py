"""Going through a space of settings: all of them, or with Optuna those that look best."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from ucb.engine import Observer
from ucb.engine.evaluate import Judgement
from ucb.tuning.choice import Found
from ucb.tuning.record import Record, Search
from ucb.tuning.space import Grid, Point, points_of
from ucb.tuning.trial import run_of, tried, try_alone, try_together

Heard = Callable[[Found], None]
"""Is told of every trial as it ends."""


def by_grid(record: Record, points: Sequence[Point], jobs: int, heard: Heard) -> None:
    """Try every point that the record lacks, ``jobs`` at a time."""
    left = [point for point in points if record.find(point) is None]
    for found in _all_found(record.search, left, jobs):
        record.add(found)
        heard(found)


def _all_found(search: Search, points: Sequence[Point], jobs: int) -> Iterator[Found]:
    if search.device.startswith("cuda") or jobs == 1:
        for first in range(0, len(points), jobs):
            yield from try_together(search, points[first : first + jobs])
        return
    threads = max(1, torch.get_num_threads() // jobs)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(partial(try_alone, search, threads), point) for point in points]
        yield from (done.result() for done in as_completed(waiting))


def by_optuna(record: Record, grid: Grid, trials: int, heard: Heard) -> None:
    """Let Optuna try ``trials`` points of the grid in all, each once; those that begin badly are cut after one task.

    The study is kept beside the record; a search that was cut goes on.
    """
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = _study(optuna, record.path.with_suffix(".journal"), record.search)
    everything = len(points_of(grid))

    def objective(trial: Any) -> float:
        point = {name: trial.suggest_categorical(name, list(values)) for name, values in grid.items()}
        known = record.find(point)
        if known is None:
            known = _with_pruning(optuna, trial, record.search, point)
            record.add(known)
            heard(known)
        if known["score"] is None:
            raise optuna.TrialPruned
        return float(known["score"])

    limit = min(trials, everything)
    for _ in itertools.count():
        tried_now = sum(record.find(point) is not None for point in points_of(grid))
        if tried_now >= limit or len(study.trials) >= 10 * limit:  # it may suggest known points again
            return
        study.optimize(objective, n_trials=1)


def _with_pruning(optuna: Any, trial: Any, search: Search, point: Point) -> Found:
    class Prune(Observer):
        def task_ended(self, task: int, row: list[Judgement]) -> None:
            trial.report(row[-1].nll, task)
            if task == 0 and trial.should_prune():
                raise optuna.TrialPruned

    try:
        return tried(search, run_of(search, point, Prune()), point)
    except optuna.TrialPruned:
        return {"settings": point, "score": None, "failed": "cut after the first task: others began better"}


def _study(optuna: Any, path: Path, search: Search) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name=f"{search.kind} {search.method} {search.epochs} epochs",
        sampler=optuna.samplers.TPESampler(seed=search.seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
        load_if_exists=True,
    )


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "Optuna is not installed: pip install optuna, or leave out --trials to try the whole grid"
        ) from None
    return optuna
