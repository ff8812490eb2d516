"""What a search is about: its benchmark and how every trial learns it, the settings to try, and the rule that chooses.

Held-out data decides; test data is out of reach while it does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ucb.engine.config import field_types, parse_values
from ucb.engine.loop import Run
from ucb.engine.training import Schedule
from ucb.methods import find_method
from ucb.storage import rename_old_keys

Point = dict[str, Any]
"""Settings to try."""
Grid = dict[str, tuple[Any, ...]]
Trial = dict[str, Any]
"""What held-out data says of some settings: they themselves, ``score`` (lower is better; None where they failed), the
standard ``error`` of the mean NLL right after learning, and the figures behind it."""

PRIOR: Grid = {"pi": (0.25, 0.5, 0.75), "log_sigma_1": (0.0, 1.0, 2.0), "log_sigma_2": (6.0, 7.0, 8.0)}
"""The paper's grid for its prior: pi, and minus the logarithms of its two spreads (appendix, hyperparameters)."""
TWO_TASKS = (
    "projected NLL: that of each of the first two tasks right after it was learnt, plus the first one's rise while the "
    "second was learnt times the mean number of later tasks, (n - 1) / 2; of all settings that are above the lowest by "
    "at most the standard error of its NLL right after learning, the one whose first task rose least"
)
ALL_TASKS = "lowest mean NLL of all tasks after the last one was learnt"
CUT = "cut after the first task: others began better"
"""Why settings that Optuna gave up early have no score."""


@dataclass(frozen=True)
class Search:
    """What is searched: the benchmark, and how every trial learns it."""

    benchmark: str
    method: str
    epochs: int = 6
    device: str = "cpu"
    blur: float | None = None
    all_tasks: bool = False
    seed: int = 0
    single_head: bool = False
    net: str | None = None
    net_options: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    """Under which recipes and trials are kept; None is the benchmark's name."""
    apart: bool = False
    task_told: bool = False

    def __post_init__(self) -> None:
        if self.name is not None and (self.name in ("", ".", "..") or any(mark in self.name for mark in "/\\")):
            raise ValueError(f"--name takes the plain name of a folder, without / and \\, not {self.name!r}")

    @property
    def kind(self) -> str:
        """The folder of recipes and trials."""
        return self.name or (self.benchmark if self.blur is None else f"{self.benchmark}-blurred")

    @property
    def method_name(self) -> str:
        """The name under which trials and recipes are kept; ``method`` may be the path of a class."""
        return find_method(self.method).name

    @property
    def rule(self) -> str:
        """How the settings are chosen."""
        return ALL_TASKS if self.all_tasks else TWO_TASKS

    @property
    def identity(self) -> dict[str, Any]:
        """What trials must agree in to be compared; on which device they learn, and under which name, is no matter."""
        # Tasks that fade into each other pass by once, whatever the number of epochs says.
        unimportant = {"device", "name"} | ({"epochs"} if self.blur is not None else set())
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in unimportant}


def grid_of(method: str, *, prior: bool = False, instead: Mapping[str, Sequence[Any]] | None = None) -> Grid:
    """Return what is tried of a method; ``instead`` replaces a setting's values, or adds a setting."""
    settings = find_method(method).settings_type
    known = field_types(settings)
    grid: Grid = settings.grid()
    if prior:
        if strange := [name for name in PRIOR if name not in known]:
            raise ValueError(f"{method} has no prior to choose: it has no setting {strange[0]!r}")
        grid |= PRIOR
    for name, values in rename_old_keys(dict(instead or {})).items():
        words = [parse_values({name: value}, known, f"{method} has no setting")[name] for value in values]
        if not words:
            raise ValueError(f"{name} needs values to try")
        grid[name] = tuple(dict.fromkeys(words))
    return grid


def points_of(grid: Grid) -> list[Point]:
    """Return every point of a grid."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def values_of(points: Sequence[Point]) -> Grid:
    """Return what was tried of each setting, in order."""
    values: dict[str, list[Any]] = {}
    for point in points:
        for name, value in point.items():
            if value not in (known := values.setdefault(name, [])):
                known.append(value)
    return {name: tuple(sorted(tried, key=lambda value: (str(type(value)), value))) for name, tried in values.items()}


def refuse_points(method: str, points: Sequence[Point]) -> None:
    """Refuse settings that the method does not allow, or that nothing would be learnt with."""
    settings = find_method(method).settings_type
    for point in points:
        Schedule().refuse_rate(settings(**point).lr)


def score_run(run: Run, settings: Point, tasks: int | None) -> Trial:
    """Return what a run of the first two tasks (``tasks`` is how many there will be) or of all (None) has shown."""
    own, last = run.progress.metrics_first, run.progress.metrics_last
    learnt = [each.nll for each in own]
    risen = statistics.mean(after.nll - before.nll for after, before in zip(last[:-1], own[:-1], strict=True))
    score = statistics.mean(each.nll for each in last) if tasks is None else project_nll(learnt, risen, tasks)
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
        "seconds": run.progress.seconds,
    }


def project_nll(learnt: Sequence[float], risen: float, tasks: int) -> float:
    """Return the mean NLL to expect after ``tasks`` tasks: two tasks show a single step of forgetting."""
    return statistics.mean(learnt) + max(risen, 0.0) * (tasks - 1) / 2


def choose(trials: Sequence[Trial], all_tasks: bool = False) -> Trial:
    """Return the trial that the rule picks."""
    whole = [trial for trial in trials if trial["score"] is not None]
    if not whole:
        why = f": {trials[0]['failed']}" if trials else ""
        raise ValueError(f"no setting could be learnt with{why}")
    best = min(whole, key=lambda trial: float(trial["score"]))
    if all_tasks:
        return best
    near = [trial for trial in whole if trial["score"] <= best["score"] + best["error"]]
    return min(near, key=lambda trial: (trial["risen"], trial["score"]))


def was_cut(trial: Trial) -> bool:
    """Whether settings were given up early: how good they are is not known."""
    return trial.get("failed") == CUT
