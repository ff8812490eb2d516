"""Going on beyond a grid whose best point lies at its edge: what is better may lie outside."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ucb.tuning.choice import Found, choose
from ucb.tuning.record import Record
from ucb.tuning.search import Heard, by_grid
from ucb.tuning.space import Grid, Point, refuse_points


def widened(record: Record, points: Sequence[Point], rounds: int, jobs: int, heard: Heard) -> list[Point]:
    """Try points beyond those that have been tried, at most ``rounds`` times; return all.

    Each time those settings of the point with the lowest score that are the smallest or the largest tried go one step
    further, alone and together. It ends early when that point lies inside, nothing beyond is allowed, or a round found
    no lower score. The score alone leads, also where the rule takes the least forgetting near the lowest: that would
    lead to ever smaller rates, away from what is best.
    """
    tried = list(points)
    best = lowest(record, tried)
    for _ in range(rounds):
        new = [point for point in beyond(tried, best["settings"]) if is_allowed(record.search.method, point)]
        if not new:
            break
        by_grid(record, new, jobs, heard)
        tried += new
        before, best = best, lowest(record, tried)
        if best["score"] >= before["score"]:
            break
    return tried


def lowest(record: Record, points: Sequence[Point]) -> Found:
    """Return the trial with the lowest score."""
    return choose([trial for point in points if (trial := record.find(point)) is not None], all_tasks=True)


def beyond(points: Sequence[Point], best: Point) -> list[Point]:
    """Return the points one step outside the edges that ``best`` lies at, as far as these are numbers above 0."""
    tried = values_of(points)
    steps = {name: [value, *further(value, tried[name])] for name, value in best.items()}
    around = (dict(zip(steps, values, strict=True)) for values in itertools.product(*steps.values()))
    return [point for point in around if point not in points]


def further(value: Any, values: Sequence[Any]) -> list[Any]:
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


def values_of(points: Sequence[Point]) -> Grid:
    """Return what was tried of each setting, in order."""
    found: dict[str, list[Any]] = {}
    for point in points:
        for name, value in point.items():
            if value not in (known := found.setdefault(name, [])):
                known.append(value)
    return {name: tuple(sorted(values, key=lambda value: (str(type(value)), value))) for name, values in found.items()}


def is_allowed(method: str, point: Point) -> bool:
    """Whether the method can be set so."""
    try:
        refuse_points(method, [point])
    except ValueError:
        return False
    return True
