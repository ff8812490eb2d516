"""What the fields of a result must look like: a page is drawn of figures that fit together, or of none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ucb.bayes import checks

Check = Callable[[Any, int], bool]
"""Whether a value is right in a result of so many tasks."""
PERCENTILES = ("ratio_p1", "ratio_p50", "ratio_p99")


def is_figure(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and checks.is_finite(value)


def _figure(value: Any, _: int) -> bool:
    return is_figure(value)


def _word(value: Any, _: int) -> bool:
    return isinstance(value, str)


def _words(value: Any, _: int) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _count(value: Any, _: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _object(value: Any, _: int) -> bool:
    return isinstance(value, dict)


def _one_for_each_task(value: Any, tasks: int) -> bool:
    return isinstance(value, list) and len(value) == tasks and all(each is None or is_figure(each) for each in value)


def _curves(value: Any, tasks: int) -> bool:
    return isinstance(value, list) and len(value) == tasks and all(map(_is_curve, value))


def _is_curve(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    columns: list[Any] = [value.get(name) for name in ("count", "confidence", "accuracy")]
    if not all(isinstance(column, list) and all(map(is_figure, column)) for column in columns):
        return False
    return len({len(column) for column in columns}) == 1 and all(n > 0 for n in columns[0])


def _movement(value: Any, _: int) -> bool:
    return isinstance(value, dict) and all(map(_is_moved, value.values()))


def _is_moved(value: Any) -> bool:
    if not isinstance(value, dict) or not all(is_figure(value.get(name)) for name in PERCENTILES):
        return False
    spread = value.get("std_log_sigma")
    return value[PERCENTILES[0]] > 0 and value[PERCENTILES[1]] > 0 and (spread is None or is_figure(spread))


def _movements(value: Any, tasks: int) -> bool:
    if not isinstance(value, list) or len(value) > tasks or not all(_movement(each, tasks) for each in value):
        return False
    return all(each.keys() <= value[0].keys() for each in value)


FIELDS: dict[str, tuple[str, Check]] = {
    "tasks": ("a list of names", _words),
    **dict.fromkeys(("acc", "bwt", "forgetting", "forward_transfer", "learning_acc"), ("a number", _figure)),
    **dict.fromkeys(("weights", "stored_values", "seconds", "peak_memory_bytes"), ("a number", _figure)),
    "beside": ("a whole number", _count),
    **dict.fromkeys(
        ("after_task_end", "nll", "epochs", "task_seconds"), ("a list with a number for each task", _one_for_each_task)
    ),
    "calibration": ("a list with a curve for each task: as many counts as confidences and accuracies", _curves),
    "sigma": ("an object with positive percentiles for each layer", _movement),
    "sigma_by_task": ("a list of objects with positive percentiles for layers that the first one has", _movements),
    "device": ("a word", _word),
    "versions": ("an object", _object),
}
"""What may be missing, or null, but if it is there must be right."""
CONFIG_FIELDS: dict[str, tuple[str, Check]] = {
    **dict.fromkeys(("benchmark", "method"), ("a word", _word)),
    **dict.fromkeys(("net_options", "training", "settings"), ("an object", _object)),
    "data": ("a list of folders", _words),
}


def what_is_wrong(result: dict[str, Any]) -> str | None:
    """Say which field of a result is odd, and what it must be; None if all are right."""
    tasks, config = len(result["tasks"]), result["config"]
    for name, (words, is_right) in FIELDS.items():
        if result.get(name) is not None and not is_right(result[name], tasks):
            return f"{name} must be {words}"
    for name, (words, is_right) in CONFIG_FIELDS.items():
        given = config.get(name)
        if not is_right(given, tasks) and (given is not None or name in ("benchmark", "method")):
            return f"{name} of its config must be {words}"
    return None
