"""Finding results: files, run folders, and folders that hold some of these."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

RESULT, CONFIG = "result.json", "config.json"
NEEDED = {"benchmark": str, "method": str, "seed": int, "tasks": list, "accuracy_matrix": list, "config": dict}


@dataclass(frozen=True)
class Found:
    """A result, and the file that it is in."""

    path: Path
    result: dict[str, Any]


def results_at(places: Iterable[Path]) -> list[Found]:
    """Return the results at all places, each file once, in the order of the places."""
    found: dict[Path, Found] = {}
    for place in places:
        for each in _at(place):
            found.setdefault(each.path.resolve(), each)
    return list(found.values())


def _at(place: Path) -> list[Found]:
    if not place.exists():
        raise FileNotFoundError(f"{place} is not there: name result files, run folders, or folders that hold some")
    if place.is_file():
        return [_checked(place, _read(place))]
    if (place / RESULT).is_file():
        return _at(place / RESULT)
    if (place / CONFIG).is_file():
        raise ValueError(f"the run in {place} is not done: there is no {RESULT} in it yet")
    found = [_checked(path, value) for path in sorted(place.rglob("*.json")) if _is_result(path, value := _read(path))]
    if not found:
        raise ValueError(f"{place} holds no result of a run")
    return found


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
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
    return Found(path, value)


def _is_triangle(matrix: list[Any], tasks: int) -> bool:
    """Whether there is a row after each task, and each is longer than the one before by a figure."""
    if len(matrix) != tasks or not tasks or not all(isinstance(row, list) for row in matrix):
        return False
    figures = all(value is None or isinstance(value, int | float) for row in matrix for value in row)
    return figures and len(matrix[0]) == 1 and all(len(after) == len(before) + 1 for before, after in pairwise(matrix))
