"""An order in words becomes a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ucb.engine import Job
from ucb.engine.job import TRAINING_KINDS, method_named
from ucb.engine.recipes import recipe_for
from ucb.engine.settings import kinds_of, typed
from ucb.nets import net_options


def job_from(order: Job, options: Mapping[str, Any], words: Iterable[str]) -> Job:
    """Return the job: the recipe's settings, over them those in ``words``, and over these the options that are set.

    ``order`` says what to learn, how and with which net; the settings of all three come together here.
    """
    for_net = net_options(order.net_name)
    known = TRAINING_KINDS | for_net | kinds_of(method_named(order.method).settings_type)
    chosen = {name: value for name, value in options.items() if value is not None}
    if strange := [f"--{name.replace('_', '-')}" for name in chosen if name not in known]:
        whose = order.net_name if strange == ["--hidden"] else order.method
        raise ValueError(f"{whose} has no {', '.join(strange)}: leave it out")
    values = typed(pairs(words) | chosen, known, f"{order.method} has no setting")
    if order.blur is not None and values.get("epochs", 1) != 1:
        raise ValueError("tasks that fade into each other pass by once: leave out --epochs")
    benchmark = order.benchmark if order.blur is None else f"{order.benchmark}-blurred"
    recipe = recipe_for(benchmark, order.method)
    parts: dict[str, dict[str, Any]] = {"training": {}, "net_options": {}, "settings": {}}
    for name, value in values.items():
        part = "training" if name in TRAINING_KINDS else "net_options" if name in for_net else "settings"
        parts[part][name] = value
    training, settings = recipe.training | parts["training"], recipe.settings | parts["settings"]
    return replace(order, net_options=parts["net_options"], training=training, settings=settings)


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
