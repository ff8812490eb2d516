"""Choosing a method's settings on held-out data. Test data is out of reach while it is done."""

from ucb.experiments.tuning.optuna_search import by_optuna
from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import (
    Grid,
    Point,
    Search,
    Trial,
    choose,
    grid_of,
    points_of,
    refuse_points,
    values_of,
)
from ucb.experiments.tuning.trials import by_grid, widen_search

__all__ = [
    "Grid",
    "Point",
    "Search",
    "Trial",
    "TrialRecord",
    "by_grid",
    "by_optuna",
    "choose",
    "grid_of",
    "points_of",
    "refuse_points",
    "values_of",
    "widen_search",
]
