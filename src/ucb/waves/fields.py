"""JSON values from a stranger's file, each checked for its type and range; a wrong one is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from ucb.data.readers.reader import shown

T = TypeVar("T")
LONGEST = 1000
"""Characters of a name."""
MOST = 1_000_000
"""Entries of a list."""


class FieldError(ValueError):
    """A value that cannot be, with its name."""


class Fields:
    """The values of one JSON object, asked for by name."""

    def __init__(self, values: Any, where: str = "") -> None:
        if not isinstance(values, dict):
            raise FieldError(f"{where or 'it'} is no object")
        self.values, self.where = values, where

    def get(self, name: str) -> Any:
        """Return a value that must be there."""
        if name not in self.values:
            raise FieldError(f"{self._named(name)} is missing")
        return self.values[name]

    def whole(self, name: str, least: int = 0, most: int = 1 << 53) -> int:
        """Return a whole number."""
        return checked_whole(self._named(name), self.get(name), least, most)

    def number(self, name: str, least: float, most: float) -> float:
        """Return a number."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise FieldError(f"{self._named(name)} is no number from {least:g} to {most:g}")
        return float(value)

    def text(self, name: str) -> str:
        """Return a text."""
        return checked_text(self._named(name), self.get(name))

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None."""
        return None if self.get(name) is None else self.text(name)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of some words."""
        value = self.get(name)
        if value not in allowed:
            raise FieldError(f"{self._named(name)} is none of {', '.join(allowed)}")
        return str(value)

    def list(self, name: str, item: Callable[[str, Any], T], most: int = MOST) -> list[T]:
        """Return a list whose items are checked."""
        value = self.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise FieldError(f"{self._named(name)} is no list of at most {most}")
        return [item(f"{self._named(name)}[{place}]", each) for place, each in enumerate(value)]

    def table(self, name: str, item: Callable[[str, Any], T]) -> dict[str, T]:
        """Return an object whose names are texts and whose values are checked."""
        value = self.get(name)
        if not isinstance(value, dict) or len(value) > MOST:
            raise FieldError(f"{self._named(name)} is no object")
        named = self._named(name)
        return {checked_text(named, key): item(f"{named}[{key[:40]!r}]", each) for key, each in value.items()}

    def only(self, *names: str) -> None:
        """Refuse values of other names."""
        for name in self.values:
            if name not in names:
                raise FieldError(f"{self._named(repr(name[:40]))} is unknown")

    def _named(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name


def checked_text(where: str, value: Any) -> str:
    """Return a text of reasonable length."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
        raise FieldError(f"{where} is no text of 1 to {LONGEST} characters")
    if shown(value) != value:
        raise FieldError(f"{where} holds half a character, which nobody can write")
    return value


def checked_whole(where: str, value: Any, least: int = 0, most: int = 1 << 53) -> int:
    """Return a whole number within a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise FieldError(f"{where} is no whole number from {least} to {most}")
    return value


def tensor(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], like: torch.dtype) -> Tensor:
    """Return a tensor, if it has the type and shape that it must have and holds finite numbers."""
    found = tensors.get(name)
    if found is None:
        raise FieldError(f"the tensor {name} is missing")
    if found.dtype != like or tuple(found.shape) != shape:
        raise FieldError(f"the tensor {name} is {found.dtype} of {tuple(found.shape)}, not {like} of {shape}")
    if found.is_floating_point() and not bool(found.isfinite().all()):
        raise FieldError(f"the tensor {name} holds NaN or infinity")
    return found
