"""The data file, read once."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def content() -> dict[str, Any]:
    """Return what the data file holds."""
    found: dict[str, Any] = json.loads((files("ucb.paper") / "figures.json").read_text())
    return found
