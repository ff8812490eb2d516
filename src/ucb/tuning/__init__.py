"""Choosing a method's settings on held-out data. Test data is out of reach while it is done."""

from ucb.tuning.choice import Found, choose
from ucb.tuning.record import Record
from ucb.tuning.search import by_grid
from ucb.tuning.searched import Search
from ucb.tuning.space import Point, grid_of, points_of, refuse_points
from ucb.tuning.widening import values_of, widened
from ucb.tuning.with_optuna import by_optuna

__all__ = [
    "Found",
    "Point",
    "Record",
    "Search",
    "by_grid",
    "by_optuna",
    "choose",
    "grid_of",
    "points_of",
    "refuse_points",
    "values_of",
    "widened",
]
