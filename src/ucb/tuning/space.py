"""What is tried of a method: its own grid, the prior's, and what the user says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ucb.engine.job import method_named
from ucb.engine.plateau import Schedule
from ucb.engine.settings import kinds_of, typed

Point = dict[str, Any]
"""Settings to try."""
Grid = dict[str, tuple[Any, ...]]

PRIOR: Grid = {"pi": (0.25, 0.5, 0.75), "log_sigma_1": (0.0, 1.0, 2.0), "log_sigma_2": (6.0, 7.0, 8.0)}
"""The paper's grid for its prior: pi, and minus the logarithms of its two spreads (appendix, hyperparameters)."""


def grid_of(method: str, *, prior: bool = False, instead: Mapping[str, Sequence[Any]] | None = None) -> Grid:
    """Return what is tried of a method; ``instead`` replaces a setting's values, or adds a setting."""
    settings = method_named(method).settings_type
    known = kinds_of(settings)
    grid: Grid = settings.grid()
    if prior:
        if strange := [name for name in PRIOR if name not in known]:
            raise ValueError(f"{method} has no prior to choose: it has no setting {strange[0]!r}")
        grid |= PRIOR
    for name, values in (instead or {}).items():
        words = [typed({name: value}, known, f"{method} has no setting")[name] for value in values]
        if not words:
            raise ValueError(f"{name} needs values to try")
        grid[name] = tuple(dict.fromkeys(words))
    return grid


def points_of(grid: Grid) -> list[Point]:
    """Return every point of a grid."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def refuse_points(method: str, points: Sequence[Point]) -> None:
    """Refuse settings that the method does not allow, or that nothing would be learnt with."""
    settings = method_named(method).settings_type
    for point in points:
        Schedule().refuse_rate(settings(**point).lr)
