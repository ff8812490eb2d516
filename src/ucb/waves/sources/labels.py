"""Labels of any kind as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any


def as_labels(values: Iterable[Any]) -> list[str | None]:
    """Return labels as text, None where there is none. A whole number is the same class however it is stored."""
    return [_as_label(value) for value in values]


def _as_label(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").strip()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, Decimal):
        digits = format(value, "f")
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return str(value).strip()
