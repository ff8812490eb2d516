"""Bars: what a figure may be at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """A row's most milliseconds or, with ``of``, its most multiple of another row's."""

    row: str
    limit: float
    of: str | None = None
    said: str = ""
    """The limit in words, as short as a table's cell."""

    def judge(self, medians: Mapping[str, float]) -> dict[str, Any] | None:
        """Return how the row stands to its bar; None where it was not measured."""
        if self.row not in medians or (self.of is not None and self.of not in medians):
            return None
        value = medians[self.row] / (1.0 if self.of is None else medians[self.of])
        return judged(self.row, value, self.limit, self.said, self.of)


def judged(row: str, value: float, limit: float, said: str, of: str | None = None) -> dict[str, Any]:
    """Return a bar, the figure that stands to it, and whether it holds."""
    return {"row": row, "of": of, "limit": limit, "said": said, "value": value, "holds": value <= limit}


def verdict(bar: Mapping[str, Any]) -> str:
    """Say a bar and whether it holds."""
    return f"{bar['said']}: {'held' if bar['holds'] else 'MISSED'}"
