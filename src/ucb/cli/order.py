"""An order in words becomes a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ucb.engine import Job
from ucb.engine.ordering import known_settings, with_recipe
from ucb.engine.recipes import Recipe


def job_from(order: Job, options: Mapping[str, Any], words: Iterable[str], recipe: Recipe | None = None) -> Job:
    """Return the job: the recipe's settings, over them those in ``words``, and over these the options that are set.

    ``order`` says what to learn, how and with which net; the settings of all three come together here. Without a
    ``recipe`` it is the package's.
    """
    known = known_settings(order)
    chosen = {name: value for name, value in options.items() if value is not None}
    if strange := [f"--{name.replace('_', '-')}" for name in chosen if name not in known]:
        whose = order.net_name if strange == ["--hidden"] else order.method
        raise ValueError(f"{whose} has no {', '.join(strange)}: leave it out")
    return with_recipe(order, pairs(words) | chosen, recipe)


def seeds_in(word: str) -> list[int]:
    """Return the seeds in a word such as ``0,1,2``."""
    try:
        seeds = [int(part) for part in word.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds takes different whole numbers such as 0,1,2, not {word!r}")
    return seeds


def pairs(words: Iterable[str]) -> dict[str, Any]:
    """Return the keys and values of words such as ``lr=0.1``."""
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not (separator and key):
            raise ValueError(f"--set takes KEY=VALUE, not {word!r}")
        found[key] = value
    return found
