"""Choosing a method's settings on held-out data. Test data is out of reach while it is done."""

from ucb.tuning.choice import Found, choose
from ucb.tuning.record import Record, Search
from ucb.tuning.search import by_grid, by_optuna
from ucb.tuning.space import Point, grid_of, points_of
from ucb.tuning.widening import values_of, widened

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
    "values_of",
    "widened",
]
