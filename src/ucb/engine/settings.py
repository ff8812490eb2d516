"""Settings from words: ``--set KEY=VALUE`` and JSON files fill typed dataclasses, and a wrong one is named."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a sentence that offers the known words nearest to a wrong one."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(known)}"


def with_values(base: T, values: Mapping[str, Any]) -> T:
    """Return a copy of the dataclass ``base`` with some fields set from words or numbers."""
    hints = get_type_hints(type(base))
    names = [f.name for f in dataclasses.fields(base)]  # type: ignore[arg-type]
    parsed = {}
    for name, value in values.items():
        if name not in names:
            raise ValueError(f"there is no setting {name!r}: {nearest(name, names)}")
        parsed[name] = parse(name, value, hints[name])
    return dataclasses.replace(base, **parsed)  # type: ignore[type-var]


def parse(name: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as the type a setting has."""
    if get_origin(kind) is Literal:
        allowed = get_args(kind)
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        return value
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if str(value).lower() not in words:
            raise ValueError(f"{name} must be true or false, not {value!r}")
        return words[str(value).lower()]
    try:
        return kind(value)
    except (TypeError, ValueError):
        what = {int: "a whole number", float: "a number"}.get(kind, str(kind))
        raise ValueError(f"{name} must be {what}, not {value!r}") from None
