"""Where a run stands and what it has measured: position, figures, how far sigma moved, which kernels made its noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, Self

import torch
from torch import Tensor

from ucb import checks, kernels
from ucb.bayes import gaussians
from ucb.bayes.posterior import Gaussian
from ucb.engine.evaluate import TaskMetrics
from ucb.kernels.triton import launch
from ucb.methods.bayesian import BayesianMethod
from ucb.metrics import AccuracyMatrix
from ucb.storage import compress, decompress, rename_old_keys

Movement = dict[str, float | None]
"""What moved in one weight tensor, by name."""

PERCENTILES = (1, 50, 99)
"""Of the ratio of sigma's end to its start."""

FIGURES = (*(f"ratio_p{p}" for p in PERCENTILES), "std_log_sigma", "correlation_with_start")
"""The names in a movement."""


@torch.no_grad()
def sigma_movement(method: BayesianMethod, among: Iterable[tuple[str, Gaussian]] | None = None) -> dict[str, Movement]:
    """Return, for each weight tensor or for some of them, how far sigma moved from its start.

    The ratio of end to start at three percentiles; how much log sigma varies at the end; and the correlation of the
    two, where both vary: near 1, the "uncertainty" would be nothing but the first random numbers.
    """
    weights = dict(gaussians(method.net) if among is None else among)
    ends = {name: gaussian.sigma.flatten().double() for name, gaussian in weights.items()}
    starts = {
        name: torch.as_tensor(method.start[name], dtype=end.dtype, device=end.device).flatten()
        for name, end in ends.items()
    }
    figures = _read([_figures(starts[name], end) for name, end in ends.items()])
    found: dict[str, Movement] = {}
    varied: list[str] = []
    for name, (*ratios, std_log, std, mean) in zip(weights, figures, strict=True):
        found[name] = dict(zip(FIGURES, (*ratios, std_log, None), strict=True))
        if std > 1e-6 * mean:
            varied.append(name)
    correlations = _read([_correlation(starts[name], ends[name]) for name in varied])
    for name, (correlation,) in zip(varied, correlations, strict=True):
        found[name]["correlation_with_start"] = None if math.isnan(correlation) else correlation
    return found


def _figures(start: Tensor, end: Tensor) -> Tensor:
    """Return the ratio's percentiles, how much log sigma varies, and the standard deviation and mean of the start."""
    ratio = (end / start).sort().values
    percentiles = [ratio[round(p / 100 * (len(ratio) - 1))] for p in PERCENTILES]
    return torch.stack([*percentiles, _std(end.log()), _std(start), start.mean()])


def _std(values: Tensor) -> Tensor:
    """Return the standard deviation, 0 for a single value."""
    return values.std() if len(values) > 1 else values.new_zeros(())


def _correlation(start: Tensor, end: Tensor) -> Tensor:
    return torch.corrcoef(torch.stack([start, end]))[0, 1:]


def _read(rows: list[Tensor]) -> list[list[float]]:
    """Return all their numbers at once: each look holds up a GPU."""
    return torch.stack(rows).tolist() if rows else []


def kernels_on(device: torch.device) -> str:
    """Say in one line which kernels draw noise on a device."""
    status = launch.status() if device.type == "cuda" else kernels.status()
    return status.splitlines()[0]


def keep_kernels(known: list[str], device: torch.device) -> str | None:
    """Add the kernels of a device to those ``known`` to have drawn a run's noise; if they are others, say what follows.

    What is in brackets is why there are no better ones, and changes nothing.
    """
    now = kernels_on(device)
    if known and _name(known[-1]) == _name(now):
        return None
    known.append(now)
    if len(known) == 1:
        return None
    return (
        f"other kernels draw the noise from here on, {now}, than up to here, {known[-2]}: "
        "the figures will not be those of a run that was never cut"
    )


def _name(status: str) -> str:
    return status.partition(" (")[0]


Figures = list[float]
"""What is known of one task, as numbers."""


@dataclass
class Progress:
    """Where a run stands, and what it has found so far."""

    task: int = 0
    phase: int = 0
    phase_epochs: list[int] = field(default_factory=list)
    """Epochs of the task's phases that are over."""
    epoch: int = 0
    batch: int = 0
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    """NLL of the present epoch's batches so far: their sum, and how many."""
    rate: float = math.nan
    plateau_best: float = math.inf
    plateau_waited: int = 0
    seconds: float = 0.0
    seconds_before_epoch: float = 0.0
    """What they were when the present epoch began; checkpoints inside it count on."""
    task_seconds: list[float] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    """After each task, the accuracy on those that were judged then: the last ones of all so far."""
    own: list[Figures] = field(default_factory=list)
    """The judgement of each task right after it was learnt."""
    last: list[Figures] = field(default_factory=list)
    """After the last task, the judgement of those that were judged then."""
    before: list[float] = field(default_factory=list)
    at_start: list[float] = field(default_factory=list)
    epochs_used: list[int] = field(default_factory=list)
    before_end: list[float] = field(default_factory=list)
    """Accuracy on each task before the method ended it, where a method wants that to count."""
    bins: list[list[list[float]]] = field(default_factory=list)
    """After the last task, the bins of confidence of those that were judged then."""
    right: list[dict[str, Any]] = field(default_factory=list)
    """After the stream's last task, which test examples of each task were right, packed."""
    sigma: list[dict[str, Movement]] = field(default_factory=list)
    """How far sigma has moved after the first task in each weight tensor, and after others in those that learnt; empty
    without sigma."""
    kernels: list[str] = field(default_factory=list)
    """What drew the noise so far: more than one where the run went on without those that it began with."""

    def add(self, row: list[TaskMetrics]) -> None:
        """Keep the judgement of all tasks so far, after one more of them."""
        judged = [judgement for judgement in row if not math.isnan(judgement.accuracy)]
        self.rows.append([judgement.accuracy for judgement in judged])
        self.own.append(row[-1].figures)
        self.last = [judgement.figures for judgement in judged]
        self.bins = [judgement.bins for judgement in judged]

    @property
    def metrics_last(self) -> list[TaskMetrics]:
        """The judgement of all tasks so far, after the last of them."""
        known = [TaskMetrics(*figures) for figures in self.last]
        return [TaskMetrics.missing()] * (len(self.rows) - len(known)) + known

    @property
    def metrics_first(self) -> list[TaskMetrics]:
        """The judgement of each task so far, right after it was learnt."""
        return [TaskMetrics(*figures) for figures in self.own]

    @property
    def matrix(self) -> AccuracyMatrix:
        """The accuracy matrix so far."""
        rows = [[math.nan] * (tasks - len(row)) + row for tasks, row in enumerate(self.rows, start=1)]
        for row, accuracy in zip(rows, self.before_end, strict=False):
            row[-1] = accuracy
        return AccuracyMatrix(rows, list(self.before), list(self.at_start))

    def state(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        held |= {name: list(value) for name, value in held.items() if isinstance(value, list)}
        held |= {name: _table(held[name]) for name in _TABLES}
        accuracies = [accuracy for row in self.rows for accuracy in row]
        moved = [[each[figure] for figure in FIGURES] for row in self.sigma for each in row.values()]
        held["rows"] = {"lengths": [len(row) for row in self.rows], "table": _table(accuracies)}
        held["sigma"] = {
            "names": [list(row) for row in self.sigma],
            "table": _table([[math.nan if number is None else number for number in each] for each in moved]),
        }
        return held

    @classmethod
    def of(cls, state: dict[str, Any]) -> Self:
        """Return what a checkpoint holds, as this version or an earlier one has saved it."""
        held = rename_old_keys(state)
        if isinstance(held["rows"], dict):
            held |= {name: _list(held[name]) for name in _TABLES}
            rows, sigma = held["rows"], held["sigma"]
            held["rows"] = _split(_list(rows["table"]), rows["lengths"])
            moved = _split(_list(sigma["table"]), [len(names) for names in sigma["names"]])
            held["sigma"] = [
                {name: _movement(figures) for name, figures in zip(names, part, strict=True)}
                for names, part in zip(sigma["names"], moved, strict=True)
            ]
        else:  # all figures of all rows, where nothing but the accuracy is asked for again
            held |= _read_full_rows(held["rows"])
            held["bins"] = [bins for bins in held.get("bins", []) if bins]
        return cls(**held)

    @property
    def where(self) -> str:
        """The position in words, but for the batch."""
        return f"task {self.task + 1}, epoch {self.epoch + 1}"

    def refuse_impossible(self, tasks: int, epochs: int, batches_of: Callable[[int], int]) -> None:
        """Refuse a position where no run is that has so many tasks: what lies beyond an end would be taken as done.

        ``batches_of`` says how long a task's epochs are. A phase's share of the ``epochs`` is rounded, and 1 at least.
        """
        for name in ("task", "phase", "epoch", "batch"):
            checks.count(f"the checkpoint's {name}", getattr(self, name), least=0)
        batches = batches_of(self.task) if self.task < tasks else 0
        if self.task > tasks or self.epoch > epochs + self.phase + 1 or self.batch > batches:
            where = f"{self.where}, batch {self.batch}"
            raise ValueError(f"the checkpoint stands at {where}, and no run of these {tasks} tasks is ever there")

    def refuse_phase_beyond(self, phases: int) -> None:
        """Refuse a phase that a task does not have."""
        if self.phase > phases:
            where = f"phase {self.phase + 1} of task {self.task + 1}"
            raise ValueError(f"the checkpoint stands at {where}, and this method's task has {phases}")


_TABLES = ("losses", "task_seconds", "own", "last", "before", "at_start", "before_end", "bins")
"""Lists of numbers, or of equally long lists of them."""

MOST_NUMBERS = 1 << 26
"""In a table: the accuracies of 11,000 tasks. The few bytes that a file takes for them could else become any number."""


def _table(values: list[Any]) -> dict[str, Any]:
    """Return numbers in few bytes: that of accuracies grows with the square of the tasks."""
    numbers = torch.tensor(values, dtype=torch.float64)
    return {"shape": list(numbers.shape), "squeezed": compress(numbers.numpy().tobytes())}


def _list(table: dict[str, Any]) -> list[Any]:
    """Undo ``_table``."""
    count = math.prod(table["shape"])
    if not 0 <= count <= MOST_NUMBERS:
        raise ValueError(f"the checkpoint has a table of {count} numbers, and no run has so many")
    data = decompress(table["squeezed"], 8 * count)
    if len(data) != 8 * count:
        raise ValueError(f"a table of the checkpoint is not of the {count} numbers that it should have")
    if not data:
        return []
    values: list[Any] = torch.frombuffer(bytearray(data), dtype=torch.float64).view(table["shape"]).tolist()
    return values


def _split(values: list[Any], lengths: list[int]) -> list[list[Any]]:
    """Return a list in pieces of these lengths."""
    if sum(lengths) != len(values):
        raise ValueError(f"the checkpoint has {len(values)} rows of figures where {sum(lengths)} belong")
    rest = iter(values)
    return [list(islice(rest, length)) for length in lengths]


def _movement(figures: Figures) -> Movement:
    *others, correlation = figures
    return dict(zip(FIGURES, (*others, None if math.isnan(correlation) else correlation), strict=True))


def _read_full_rows(rows: list[list[Figures]]) -> dict[str, Any]:
    judged = [[figures for figures in row if not math.isnan(figures[0])] for row in rows]
    return {
        "rows": [[figures[0] for figures in row] for row in judged],
        "own": [row[-1] for row in rows],
        "last": judged[-1] if judged else [],
    }
