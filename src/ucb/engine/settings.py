"""Settings from words: ``--set KEY=VALUE`` and JSON files fill typed dataclasses, and a wrong one is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ucb.bayes.checks import nearest
from ucb.old_names import under_present_names

T = TypeVar("T")


def kinds_of(dataclass: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(dataclass)
    return {field.name: hints[field.name] for field in dataclasses.fields(dataclass)}


def with_values(base: T, values: Mapping[str, Any]) -> T:
    """Return a copy of the dataclass ``base`` with some fields set from words or numbers."""
    return dataclasses.replace(base, **typed(values, kinds_of(type(base))))  # type: ignore[type-var]


def typed(values: Mapping[str, Any], kinds: Mapping[str, Any], unknown: str = "there is no setting") -> dict[str, Any]:
    """Return ``values`` in the types that their names have; ``unknown`` begins the sentence about a wrong name."""
    found = {}
    for name, value in under_present_names(dict(values)).items():
        if name not in kinds:
            raise ValueError(f"{unknown} {name!r}: {nearest(name, kinds)}")
        found[name] = parse(name, value, kinds[name])
    return found


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
    if kind == Sequence[int]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(f"{name} must be a list of whole numbers, not {value!r}")
        return [parse(name, each, int) for each in value]
    return _number(name, value, kind)


def _number(name: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as a whole number or a float, if nothing is lost by that."""
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    rounded = isinstance(value, float) and number != value and value == value
    if number is None or isinstance(value, bool) or rounded:
        what = {int: "a whole number", float: "a number"}.get(kind, str(kind))
        raise ValueError(f"{name} must be {what}, not {value!r}")
    return number
