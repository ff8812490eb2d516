"""The data sets there are; the facts about them are in catalogue.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from ucb.checks import nearest

FACES = 100
"""Classes of data sets of faces: the people with most images."""


@dataclass(frozen=True)
class OfficialFile:
    """A file as its authors publish it. ``digest`` is ``algorithm:hex``, None where none is published.

    ``instead`` are other files that serve the same purpose: a raw form, or another edition.
    """

    name: str
    urls: tuple[str, ...] = ()
    digest: str | None = None
    instead: tuple[OfficialFile, ...] = ()

    def forms(self) -> tuple[OfficialFile, ...]:
        """Return the file itself, then those that serve the same purpose."""
        return (self, *self.instead)


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set before any of its files are there.

    ``shape`` is that of an image, [H, W] or [H, W, 3]. ``train`` and ``test`` are how many images there are, None where
    that depends on what is imported. ``classes`` are their names in the order of their labels, None where they are
    those of the folders. ``folders`` says that an unpacked folder can be imported too, ``packaged`` that a copy comes
    with the package. ``wrong`` says, for files that are easily taken for the right ones, what they are.
    """

    name: str
    title: str
    note: str
    shape: tuple[int, ...]
    files: tuple[OfficialFile, ...] = ()
    classes: tuple[str, ...] | None = None
    train: int | None = None
    test: int | None = None
    folders: bool = False
    packaged: bool = False
    wrong: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return FACES if self.classes is None else len(self.classes)


def find(name: str) -> DataSet:
    """Return the data set of that name; for a wrong one the nearest right ones are offered."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    raise ValueError(f"there is no data set {name!r}: {nearest(name, CATALOGUE)}")


def _freeze(value: Any) -> Any:
    """Return lists as tuples, and files as such."""
    if isinstance(value, list):
        return tuple(_freeze(each) for each in value)
    is_file = isinstance(value, dict) and "digest" in value
    return OfficialFile(**{key: _freeze(each) for key, each in value.items()}) if is_file else value


def _read() -> dict[str, DataSet]:
    facts = tomllib.loads((files("ucb.data") / "catalogue.toml").read_text(encoding="utf-8"))
    frozen = {name: {key: _freeze(value) for key, value in known.items()} for name, known in facts.items()}
    return {name: DataSet(name, **known) for name, known in frozen.items()}


CATALOGUE: Mapping[str, DataSet] = _read()
