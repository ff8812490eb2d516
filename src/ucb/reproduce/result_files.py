"""Reads result files. One that is damaged or incomplete is named, with what is wrong and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ucb.bayes import checks
from ucb.reproduce.definitions import Row, Table, home_of
from ucb.reproduce.jobs import ROOM
from ucb.storage import read_json


class DamagedResultError(OSError):
    """Result files that cannot be used: a line for each, which names the file, the damage and the remedy."""


def results_of(table: Table, row: Row, results: Path) -> list[dict[str, Any]]:
    """Return a row's results, in the order of their seeds."""
    home, kept = home_of(table, row)
    pattern = re.compile(re.escape(kept.name) + r"-seed(\d+)\.json")
    folder = results / ROOM / home.id
    found, damaged = {}, []
    for path in sorted(folder.glob(f"{kept.name}-seed*.json")) if folder.is_dir() else ():
        if match := pattern.fullmatch(path.name):
            seed = int(match[1])
            found[seed] = result_in(path)
            if said := damage(found[seed], seed):
                damaged.append(f"{path} is {said}; remove it, and ucb reproduce {home.id} makes it anew")
    if damaged:
        raise DamagedResultError("\n".join(damaged))
    return [found[seed] for seed in sorted(found)]


def result_in(path: Path) -> Any:
    """Return what a file holds; None where that is no JSON."""
    try:
        return read_json(path)
    except ValueError:
        return None


def damage(result: Any, seed: int) -> str:
    """Say what is wrong with the result of that seed; nothing where a table can use it."""
    if not isinstance(result, dict):
        return "damaged: it holds no JSON object"
    if missing := [name for name in ("seed", "acc", "bwt", "config") if name not in result]:
        return f"incomplete: it has no {' and no '.join(missing)}"
    if result["seed"] != seed:
        return f"damaged: it is named after seed {seed} and holds seed {result['seed']!r}"
    if not isinstance(result["config"], dict):
        return "damaged: its config is no JSON object"
    if not _number(result["acc"]):
        return f"damaged: its acc is {result['acc']!r}"
    if result["bwt"] is not None and not _number(result["bwt"]):
        return f"damaged: its bwt is {result['bwt']!r}"
    if "seconds" in result and not _number(result["seconds"]):
        return f"damaged: its seconds are {result['seconds']!r}"
    return ""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and checks.is_finite(value)
