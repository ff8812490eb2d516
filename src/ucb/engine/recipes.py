"""The settings that were chosen for a method on a benchmark, and how: small JSON files in the package."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """Chosen settings, and a sentence that says how they were found."""

    training: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    found: str = "defaults"
    grid: dict[str, list[Any]] = field(default_factory=dict)
    """What was tried."""


def recipe_for(benchmark: str, method: str) -> Recipe:
    """Return the recipe of a method on a benchmark, or an empty one."""
    path = files("ucb") / "recipes" / benchmark / f"{method}.json"
    return Recipe(**json.loads(path.read_text())) if path.is_file() else Recipe()
