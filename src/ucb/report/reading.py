"""Finding results: files, run folders, and folders that hold some of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ucb.old_names import under_present_names
from ucb.report.fields import is_figure, what_is_wrong
from ucb.storage import read_json

RESULT, CONFIG = "result.json", "config.json"
NEEDED = {"benchmark": str, "method": str, "seed": int, "tasks": list, "accuracy_matrix": list, "config": dict}


@dataclass(frozen=True)
class Found:
    """A result, and the file that it is in."""

    path: Path
    result: dict[str, Any]
    copies: list[Path] = field(default_factory=list)
    """Where the same result was found again."""

    @property
    def files(self) -> list[Path]:
        """All files that it is in."""
        return [self.path, *self.copies]


def results_at(places: Iterable[Path], left_out: Callable[[Path], object] = lambda _: None) -> list[Found]:
    """Return the results at all places, each once, in the order of the places.

    A run may be in several files: ``ucb reproduce`` leaves it in its folder, and among the results. The first counts.
    Folders without a result, such as those of runs that are not done, go to ``left_out``, unless there is nothing else.
    """
    found: dict[str, Found] = {}
    without: dict[Path, str] = {}
    for place in places:
        for each in _at(place, without):
            kept = found.setdefault(json.dumps(each.result, sort_keys=True), each)
            if kept is not each:
                kept.copies.append(each.path)
    if not found:
        first, *others = without.values() or ["no place is named"]
        raise ValueError(f"{first}; so it is at {len(others)} more" if others else first)
    for place in without:
        left_out(place)
    return list(found.values())


def _at(place: Path, without: dict[Path, str]) -> list[Found]:
    """Return the results at a place; ``without`` gets a sentence about each folder that has none."""
    if not place.exists():
        raise FileNotFoundError(f"{place} is not there: name result files, run folders, or folders that hold some")
    if not place.is_dir():
        return [_checked(place, _read(place))]
    if (place / RESULT).exists():
        return _at(place / RESULT, without)
    if (place / CONFIG).is_file():
        without[place] = f"the run in {place} is not done: there is no {RESULT} in it yet"
        return []
    found, before = [], len(without)
    for path in sorted(place.rglob("*.json")):
        value = _read(path)
        if _is_result(path, value):
            found.append(_checked(path, value))
        elif path.name == CONFIG and not (path.parent / RESULT).is_file():
            _at(path.parent, without)
    if not found and len(without) == before:
        without[place] = f"{place} holds no result of a run"
    return found


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or no JSON: {error}") from None


def _is_result(path: Path, value: Any) -> bool:
    """Tell a result from the other JSON files of a folder."""
    return path.name == RESULT or (isinstance(value, dict) and {"method", "accuracy_matrix"} <= value.keys())


def _checked(path: Path, value: Any) -> Found:
    """Return the result, if it has what every chart stands on."""
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no result of a run: it holds no JSON object")
    for name, kind in NEEDED.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f"{path} is no result of a run: {name} is missing, or no {kind.__name__}")
    if not _is_triangle(value["accuracy_matrix"], len(value["tasks"])):
        raise ValueError(f"{path} is no result of a run: accuracy_matrix has no row for each of its tasks")
    value["config"] = under_present_names(value["config"])
    if wrong := what_is_wrong(value):
        raise ValueError(f"{path} cannot be drawn: {wrong}")
    return Found(path, value)


def _is_triangle(matrix: list[Any], tasks: int) -> bool:
    """Whether there is a row after each task, and each is longer than the one before by a figure."""
    if len(matrix) != tasks or not tasks or not all(isinstance(row, list) for row in matrix):
        return False
    figures = all(value is None or is_figure(value) for row in matrix for value in row)
    return figures and len(matrix[0]) == 1 and all(len(after) == len(before) + 1 for before, after in pairwise(matrix))
