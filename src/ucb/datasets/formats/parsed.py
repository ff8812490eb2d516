"""What a parser returns."""

from __future__ import annotations

from typing import NamedTuple

from ucb.datasets.arrays import Arrays


class Parsed(NamedTuple):
    """The arrays, and how many images were skipped because they could not be read."""

    arrays: Arrays
    unreadable: int = 0
