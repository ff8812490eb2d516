"""The settings that were chosen for a method on a benchmark, and how: small JSON files.

Those in the package are the ones that our tables are measured with. Those in the user's own folder ``recipes``, where
``ucb tune`` writes, go before them in a run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from ucb.old_names import under_present_names
from ucb.storage import read_json

OWN = Path("recipes")
"""The user's own, in the current folder."""


@dataclass(frozen=True)
class Recipe:
    """Chosen settings, and a sentence that says how they were found."""

    training: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    found: str = "defaults"
    grid: dict[str, list[Any]] = field(default_factory=dict)
    """What was tried of each setting."""
    tried: int | None = None
    """How many points were tried in all, before the last search too; early recipes do not say."""


class OwnRecipe(NamedTuple):
    """A recipe of the user's own, and its file."""

    path: Path
    recipe: Recipe


def recipe_for(benchmark: str, method: str) -> Recipe:
    """Return the package's recipe of a method on a benchmark, or an empty one."""
    path = files("ucb") / "recipes" / benchmark / f"{method}.json"
    return Recipe(**under_present_names(json.loads(path.read_text()))) if path.is_file() else Recipe()


def own_recipe(benchmark: str, method: str, folder: Path = OWN) -> OwnRecipe | None:
    """Return the user's own recipe of a method on a benchmark, if there is one."""
    path = folder / benchmark / f"{method}.json"
    if not path.is_file():
        return None
    try:
        recipe = Recipe(**under_present_names(read_json(path)))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no recipe: {error}; mend or remove it") from None
    if not (isinstance(recipe.training, dict) and isinstance(recipe.settings, dict)):
        raise ValueError(f"{path} is no recipe: training and settings must be JSON objects; mend or remove it")
    return OwnRecipe(path, recipe)
