"""Where the paper contradicts itself: each figure with the place where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from ucb.paper.content import content


@dataclass(frozen=True)
class Stated:
    """A figure, and where it stands: in a cell of a table, in a section's text, or outside the paper."""

    value: float
    table: str | None = None
    row: str | None = None
    of: Mapping[str, float | str] = field(default_factory=dict)
    column: str | None = None
    text: str | None = None
    """The section whose text says it."""
    elsewhere: str | None = None


@dataclass(frozen=True)
class Contradiction:
    """Figures that should agree and do not, and a sentence about them."""

    about: str
    stated: tuple[Stated, ...]
    note: str


@cache
def contradictions() -> tuple[Contradiction, ...]:
    """Return all that were found."""
    return tuple(
        Contradiction(each["about"], tuple(Stated(**stated) for stated in each["stated"]), each["note"])
        for each in content()["contradictions"]
    )
