"""Runs that differ in nothing but the seed are one group, with a name that tells it from the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

Result = dict[str, Any]
STREAM = ("benchmark", "tasks", "single_head", "apart", "task_told", "blur", "faces", "data")
"""What decides which tasks are learnt, of a run's configuration."""
NO_SETTING = ("seed", "device", *STREAM)
LEFT_OPEN = ""
"""Stands for the value of a setting that a run does not name; no other does, as values are written as JSON."""


@dataclass(frozen=True)
class Group:
    """The runs of one configuration, and what to call them."""

    label: str
    """The method, and what tells it from the other groups of this method."""
    runs: list[Result]
    full: str = ""
    """The label with every setting that differs, also where most groups have the same."""

    def values(self, name: str) -> list[float]:
        """Return a figure of all runs that have it."""
        return [run[name] for run in self.runs if run.get(name) is not None]


def groups_of(results: Sequence[Result]) -> list[Group]:
    """Put together what differs in the seed, and the device, only; where a method has several groups, labels say which.

    The best stands first, in every chart: so a method is found at one height.
    """
    by_settings: dict[str, list[Result]] = {}
    for result in results:
        by_settings.setdefault(json.dumps(_flat(result), sort_keys=True), []).append(result)
    groups = list(by_settings.values())
    found = [_named(runs, [other[0] for other in groups]) for runs in groups]
    return sorted(found, key=lambda group: -mean(group.values("acc") or [0.0]))


def _named(runs: list[Result], one_of_each: Sequence[Result]) -> Group:
    method, own = str(runs[0]["method"]), _flat(runs[0])
    others = [_flat(other) for other in one_of_each if other["method"] == method]
    named, all_named = [], []
    for name in sorted({name for other in others for name in other}):
        words = [json.dumps(other[name]) if name in other else LEFT_OPEN for other in others]
        if len(set(words)) > 1 and name in own:
            all_named.append(_said(name, own[name]))
            if json.dumps(own[name]) != _usual(words):
                named.append(all_named[-1])
    return Group(_label(method, named), runs, _label(method, all_named))


def _usual(words: Sequence[str]) -> str:
    """Return the value of a setting that goes without saying; it is one only, so that no two groups look alike."""
    word, times = Counter(words).most_common(1)[0]
    return LEFT_OPEN if LEFT_OPEN in words or 2 * times <= len(words) or len(words) < 3 else word


def _label(method: str, said: Sequence[str]) -> str:
    return f"{method} ({', '.join(said)})" if said else method


def _said(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    word = ", ".join(map(_number, value)) if isinstance(value, list) else _number(value)
    return f"{name}={word}"


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e6 else str(value)


def _flat(result: Result) -> dict[str, Any]:
    """Return the method's configuration as one list of names and values, without the seed."""
    flat: dict[str, Any] = {"method": result["method"]}
    for name, value in result["config"].items():
        if isinstance(value, dict):
            flat |= value
        elif name not in NO_SETTING and value is not None:
            flat[name] = value
    return flat
