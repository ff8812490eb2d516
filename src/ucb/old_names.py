"""Names that settings and figures had in earlier versions, whose files are read under the present ones."""

from __future__ import annotations

from typing import Any

OLD_NAMES: dict[str, str | None] = {"together": None, "steps_together": None}
"""What each is called now; None where there is no such thing any more."""


def under_present_names(values: Any) -> Any:
    """Return a configuration, and those inside it, under the present names, without what is gone."""
    if not isinstance(values, dict):
        return values
    renamed = ((OLD_NAMES.get(name, name), value) for name, value in values.items())
    return {name: under_present_names(value) for name, value in renamed if name is not None}
