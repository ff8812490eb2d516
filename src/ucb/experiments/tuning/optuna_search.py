"""Letting Optuna pick the points of a grid that look best after those that were tried."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ucb.engine import Observer
from ucb.engine.result import TaskMetrics
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import CUT, Grid, Point, Search, Trial, points_of
from ucb.experiments.tuning.trials import OnTrial, try_point, try_together
from ucb.storage import ceilings, open_for_append, read_bytes

PATIENCE = 10
"""Optuna may pick points again. After so many times without a new one it is given one."""


def search_with_optuna(record: TrialRecord, grid: Grid, trials: int, on_trial: OnTrial, jobs: int = 1) -> None:
    """Let Optuna try ``trials`` points of the grid in all, each once.

    One at a time, those that begin badly are cut after one task; with more ``jobs`` so many are learnt to their ends
    together. The study is kept beside the record; a search that was cut goes on.
    """
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "Optuna is not installed: pip install optuna, or leave out --trials to try the whole grid"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = _study(optuna, record.path.with_suffix(".journal"), record.search, grid)
    kinds = {name: optuna.distributions.CategoricalDistribution(values) for name, values in grid.items()}
    points, in_vain = points_of(grid), 0
    while True:
        new = [point for point in points if record.find(point) is None]
        left = min(trials, len(points)) - (len(points) - len(new))
        if left <= 0:
            return
        if in_vain >= PATIENCE:
            study.enqueue_trial(new[0])
        asked = [study.ask(kinds) for _ in range(min(jobs, left))]
        picked = [{name: trial.params[name] for name in grid} for trial in asked]
        fresh = [point for point in new if point in picked]
        found: Iterable[Trial] = (_try_with_pruning(optuna, asked[0], record.search, point) for point in fresh)
        if jobs > 1 and fresh:
            found = try_together(record.search, fresh)
        for each in found:
            record.add(each)
            on_trial(each)
        for trial, point in zip(asked, picked, strict=True):
            known = record.find(point)
            score = None if known is None else known["score"]
            study.tell(trial, score, state=optuna.trial.TrialState.PRUNED if score is None else None)
        in_vain = 0 if fresh else in_vain + 1


def _try_with_pruning(optuna: Any, trial: Any, search: Search, point: Point) -> Trial:
    class Prune(Observer):
        def task_ended(self, task: int, row: list[TaskMetrics]) -> None:
            trial.report(row[-1].nll, task)
            if task == 0 and trial.should_prune():
                raise optuna.TrialPruned

    try:
        return try_point(search, point, Prune())
    except optuna.TrialPruned:
        return {"settings": point, "score": None, "failed": CUT}


def _study(optuna: Any, path: Path, search: Search, grid: Grid) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    open_for_append(path).close()  # Optuna would follow a link, and wait for a pipe
    _cut_torn_line(optuna, path)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    try:
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            # A study knows the trials of one search, and its settings keep their values.
            study_name=json.dumps({**search.identity, "grid": grid}, sort_keys=True),
            sampler=optuna.samplers.TPESampler(seed=search.seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
            load_if_exists=True,
        )
    except json.JSONDecodeError as error:
        raise OSError(f"{path} is damaged: {error}; remove it, as every trial is in the record beside it") from None


def _cut_torn_line(optuna: Any, path: Path) -> None:
    """Cut a journal back to its last whole line.

    A kill or a full disk may leave half a line at the end. Optuna would write the next one right behind it, and could
    then read neither. Nothing is lost: every trial is in the record.
    """

    def whole_lines() -> int:
        return read_bytes(path, ceilings.JSON).rfind(b"\n") + 1

    if whole_lines() == path.stat().st_size:
        return
    lock = optuna.storages.journal.JournalFileSymlinkLock(str(path))  # Optuna's own: another search may be writing
    lock.acquire()
    try:
        os.truncate(path, whole_lines())
    finally:
        lock.release()
