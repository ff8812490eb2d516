"""Data sets as arrays: what there is, how to come by it, and where it is kept."""

from ucb.datasets.arrays import Arrays, read_arrays, write_arrays
from ucb.datasets.cache import load
from ucb.datasets.catalogue import CATALOGUE, DataSet, find

__all__ = ["CATALOGUE", "Arrays", "DataSet", "find", "load", "read_arrays", "write_arrays"]
