"""A chart as plain values: what plotly draws, what it means in words, and the same figures as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

Row = list[Any]
NAMES_FIT = 8
"""Task names up to this length stand at an axis; longer ones make way for their numbers."""
COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
BLUE, PALE, ORANGE, DARK = "#7fbcf0", "#f4f1ea", "#f2a56d", "#16181a"
CELLS = {"xgap": 1, "ygap": 1, "showscale": False, "textfont": {"color": DARK}}
"""What heat maps have in common: figures are dark in every cell, as all the colours are light."""


@dataclass(frozen=True)
class Table:
    """Heads, and rows of words and numbers; None was not measured."""

    heads: list[str]
    rows: list[Row]
    digits: int = 2


@dataclass(frozen=True)
class Chart:
    """Without traces there is nothing to draw, and ``note`` says why."""

    title: str
    note: str
    traces: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    table: Table | None = None
    height: int = 300


def axis(title: str, labels: Sequence[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return an axis; with labels, they stand at 1, 2, ...: plotly would read names such as 1/2 as dates."""
    ticks = {} if labels is None else {"tickvals": places(labels), "ticktext": [plain(label) for label in labels]}
    return {"title": {"text": title}, **ticks, **more}


def places(labels: Sequence[object]) -> list[int]:
    """Return where on an axis the labels stand."""
    return list(range(1, len(labels) + 1))


def plain(name: str) -> str:
    """Return a name in which plotly sees no markup."""
    return escape(name, quote=False)


def short_names(tasks: Sequence[str]) -> list[str]:
    """Return the tasks' names for an axis, or their numbers where names are long."""
    if all(len(name) <= NAMES_FIT for name in tasks) and len(tasks) <= COLOURS:
        return list(tasks)
    return [str(number) for number in places(tasks)]


def telling_apart(index: int) -> dict[str, Any]:
    """Return how line number ``index`` looks: colours come round again, dashes and marks then differ."""
    turn = index // COLOURS
    return {"line": {"dash": DASHES[turn % len(DASHES)]}, "marker": {"symbol": SYMBOLS[turn % len(SYMBOLS)]}}
