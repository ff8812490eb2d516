"""Finding results: files, run folders, and folders that hold some of these; and what of a result can be drawn.

A page is drawn of figures that fit together, or of none. Where runs share a process, times depend on neighbours, and
memory is held by all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ucb import checks
from ucb.storage import read_json, rename_old_keys

Result = dict[str, Any]
RESULT, CONFIG = "result.json", "config.json"
NEEDED = {"benchmark": str, "method": str, "seed": int, "tasks": list, "accuracy_matrix": list, "config": dict}
MEMORY, BESIDE = "peak_memory_bytes", "beside"
PERCENTILES = ("ratio_p1", "ratio_p50", "ratio_p99")


@dataclass(frozen=True)
class FoundResult:
    """A result, and the file that it is in."""

    path: Path
    result: Result
    copies: list[Path] = field(default_factory=list)
    """Where the same result was found again."""


def results_at(places: Iterable[Path], left_out: Callable[[Path], object] = lambda _: None) -> list[FoundResult]:
    """Return the results at all places, each once, in the order of the places.

    A run may be in several files: ``ucb reproduce`` leaves it in its folder, and among the results. The first counts.
    Folders without a result, such as those of runs that are not done, go to ``left_out``, unless there is nothing else.
    """
    found: dict[str, FoundResult] = {}
    without: dict[Path, str] = {}
    for place in places:
        for each in _results_at(place, without):
            first = found.setdefault(json.dumps(each.result, sort_keys=True), each)
            if first is not each:
                first.copies.append(each.path)
    if not found:
        why, *others = without.values() or ["no place is named"]
        raise ValueError(f"{why}; so it is at {len(others)} more" if others else why)
    for place in without:
        left_out(place)
    return list(found.values())


def _results_at(place: Path, without: dict[Path, str]) -> list[FoundResult]:
    """Return the results at a place; ``without`` gets a sentence about each folder that has none."""
    if not place.exists():
        raise FileNotFoundError(f"{place} is not there: name result files, run folders, or folders that hold some")
    if not place.is_dir():
        return [_check(place, _read(place))]
    if (place / RESULT).exists():
        return _results_at(place / RESULT, without)
    if (place / CONFIG).is_file():
        without[place] = f"the run in {place} is not done: there is no {RESULT} in it yet"
        return []
    found, before = [], len(without)
    for path in sorted(place.rglob("*.json")):
        value = _read(path)
        if path.name == RESULT or (isinstance(value, dict) and {"method", "accuracy_matrix"} <= value.keys()):
            found.append(_check(path, value))
        elif path.name == CONFIG and not (path.parent / RESULT).is_file():
            _results_at(path.parent, without)
    if not found and len(without) == before:
        without[place] = f"{place} holds no result of a run"
    return found


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or no JSON: {error}") from None


def _check(path: Path, value: Any) -> FoundResult:
    """Return the result, if it has what every chart stands on."""
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no result of a run: it holds no JSON object")
    for name, kind in NEEDED.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f"{path} is no result of a run: {name} is missing, or no {kind.__name__}")
    if not _is_triangle(value["accuracy_matrix"], len(value["tasks"])):
        raise ValueError(f"{path} is no result of a run: accuracy_matrix has no row for each of its tasks")
    value["config"] = rename_old_keys(value["config"])
    if wrong := find_odd_field(value):
        raise ValueError(f"{path} cannot be drawn: {wrong}")
    return FoundResult(path, value)


def _is_triangle(matrix: list[Any], tasks: int) -> bool:
    """Whether there is a row after each task, and each is longer than the one before by a figure."""
    if not tasks or not _is_list(matrix, lambda row: _is_list(row, _is_figure_or_none), tasks):
        return False
    return len(matrix[0]) == 1 and all(len(after) == len(before) + 1 for before, after in pairwise(matrix))


def _is_figure(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and checks.is_finite(value)


def _is_figure_or_none(value: Any) -> bool:
    return value is None or _is_figure(value)


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any, is_right: Callable[[Any], bool], length: int | None = None) -> bool:
    return isinstance(value, list) and (length is None or len(value) == length) and all(map(is_right, value))


def _is_curve(value: Any) -> bool:
    """Whether it is a reliability curve: as many counts as confidences and accuracies."""
    names = ("count", "confidence", "accuracy")
    columns: list[Any] = [value.get(name) for name in names] if isinstance(value, dict) else [None]
    if not all(_is_list(column, _is_figure) for column in columns):
        return False
    return len({len(column) for column in columns}) == 1 and all(n > 0 for n in columns[0])


def _is_movement(value: Any) -> bool:
    """Whether it says how sigma moved in each layer."""
    return isinstance(value, dict) and all(map(_is_layer_movement, value.values()))


def _is_layer_movement(value: Any) -> bool:
    if not isinstance(value, dict) or not all(_is_figure(value.get(name)) for name in PERCENTILES):
        return False
    return value[PERCENTILES[0]] > 0 and value[PERCENTILES[1]] > 0 and _is_figure_or_none(value.get("std_log_sigma"))


def _are_movements(value: Any, tasks: int) -> bool:
    is_right = _is_list(value, _is_movement) and len(value) <= tasks
    return is_right and all(each.keys() <= value[0].keys() for each in value)


FieldRule = tuple[str, Callable[[Any, int], bool]]
"""What a field must be, in words, and whether a value is that in a result of so many tasks."""
WORD: FieldRule = ("a word", lambda value, _: _is_word(value))
NUMBER: FieldRule = ("a number", lambda value, _: _is_figure(value))
OBJECT: FieldRule = ("an object", lambda value, _: isinstance(value, dict))
NUMBERS: FieldRule = ("a list with a number for each task", lambda value, n: _is_list(value, _is_figure_or_none, n))
FIELDS: dict[str, FieldRule] = {
    "tasks": ("a list of names", lambda value, _: _is_list(value, _is_word)),
    **dict.fromkeys(("acc", "bwt", "forgetting", "forward_transfer", "learning_acc"), NUMBER),
    **dict.fromkeys(("weights", "stored_values", "seconds", MEMORY), NUMBER),
    BESIDE: ("a whole number", lambda value, _: _is_figure(value) and isinstance(value, int) and value >= 0),
    **dict.fromkeys(("after_task_end", "nll", "epochs", "task_seconds"), NUMBERS),
    "calibration": (
        "a list with a curve for each task: as many counts as confidences and accuracies",
        lambda value, tasks: _is_list(value, _is_curve, tasks),
    ),
    "sigma": ("an object with positive percentiles for each layer", lambda value, _: _is_movement(value)),
    "sigma_by_task": ("a list of objects with positive percentiles for layers that the first one has", _are_movements),
    "device": WORD,
    "versions": OBJECT,
}
"""What may be missing, or null, but if it is there must be right."""
CONFIG_FIELDS: dict[str, FieldRule] = {
    **dict.fromkeys(("benchmark", "method"), WORD),
    **dict.fromkeys(("net_options", "training", "settings"), OBJECT),
    "data": ("a list of folders", lambda value, _: _is_list(value, _is_word)),
}


def find_odd_field(result: Result) -> str | None:
    """Say which field of a result is odd, and what it must be; None if all are right."""
    tasks, config = len(result["tasks"]), result["config"]
    for name, (words, is_right) in FIELDS.items():
        if result.get(name) is not None and not is_right(result[name], tasks):
            return f"{name} must be {words}"
    for name, (words, is_right) in CONFIG_FIELDS.items():
        value = config.get(name)
        if not is_right(value, tasks) and (value is not None or name in ("benchmark", "method")):
            return f"{name} of its config must be {words}"
    return None


def leave_out_shared_memory(results: Sequence[Result]) -> list[Result]:
    """Return the results, each of another run, without memory that is another run's too.

    Earlier results do not say what ran beside them: where several have exactly the same figure, it is their process's.
    """

    def memory(result: Result) -> tuple[Any, Any]:
        return result.get("device"), result.get(MEMORY)

    earlier = Counter(memory(result) for result in results if BESIDE not in result)
    shared = {figure for figure, runs in earlier.items() if runs > 1 and figure[1] is not None}
    return [
        result | {MEMORY: None, BESIDE: None} if BESIDE not in result and memory(result) in shared else result
        for result in results
    ]


def describe_neighbours(result: Result) -> str:
    """Say what learnt at the same time in a run's process, or nothing where it was alone."""
    beside = result.get(BESIDE, 0)
    if beside is None:
        return "perhaps side by side with others"
    return f"side by side with {beside} other{'' if beside == 1 else 's'}" if beside else ""


def cost_rows(result: Result) -> list[list[str]]:
    """Return what time and memory a run took, in words."""
    rows = []
    if result.get(MEMORY) is not None:
        whose = "peak memory" if BESIDE in result else "peak memory of its process"
        rows.append([f"{whose} (bytes)", f"{result[MEMORY]:,}"])
    elif BESIDE in result:
        rows.append(["peak memory (bytes)", "not known: runs shared it" if result[BESIDE] != 0 else "not known"])
    if result.get("seconds") is not None:
        rows.append([", ".join(filter(None, ["seconds", describe_neighbours(result)])), f"{result['seconds']:,.1f}"])
    return rows


def describe_times(runs: Sequence[Result]) -> str:
    """Return sentences about what else, beside the method, decides the times of runs that are compared."""
    beside = sorted(run[BESIDE] for run in runs if run.get(BESIDE))
    unknown = sum(BESIDE in run and run[BESIDE] is None for run in runs)
    said = ""
    if beside:
        span = " to ".join(map(str, sorted({beside[0], beside[-1]})))
        others = "other" if beside[-1] == 1 else "others"
        said += f" {len(beside)} of {len(runs)} runs learnt side by side with {span} {others}: alone they take less."
    if unknown:
        said += f" {unknown} of {len(runs)} runs may have learnt side by side with others."
    return said + _describe_devices(runs)


def describe_memory(runs: Sequence[Result]) -> str:
    """Return sentences about what the memory of runs that are compared stands for, and of which it is not known."""
    known = [run for run in runs if run.get(MEMORY) is not None]
    unknown = sum(BESIDE in run and run.get(MEMORY) is None for run in runs)
    said = " Earlier versions kept the peak of a run's process." if any(BESIDE not in run for run in known) else ""
    if unknown:
        said += f" Not known of {unknown} of {len(runs)} runs: they shared a process with others, or were resumed."
    return said + _describe_devices(known)


def _describe_devices(runs: Sequence[Result]) -> str:
    names = {str(run.get("device") or "a device that is not named") for run in runs}
    devices = sorted({"cpu, 1 thread" if name == "cpu, 1 threads" else name for name in names})  # as early results say
    return f" Not all ran on the same device: {'; '.join(devices)}." if len(devices) > 1 else ""
