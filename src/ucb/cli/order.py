"""An order in words becomes a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ucb.engine import Job
from ucb.engine.job import TRAINING_KINDS, method_named
from ucb.engine.recipes import recipe_for
from ucb.engine.settings import kinds_of, typed


def job_from(
    benchmark: str,
    method: str,
    options: Mapping[str, Any],
    words: Iterable[str],
    hidden: list[int] | None,
    seed: int,
    tasks: int | None,
    single_head: bool,
    blur: float | None,
    device: str,
) -> Job:
    """Return the job: the recipe's settings, over them those in ``words``, and over these the options that are set."""
    known = TRAINING_KINDS | kinds_of(method_named(method).settings_type)
    chosen = {name: value for name, value in options.items() if value is not None}
    if strange := [f"--{name.replace('_', '-')}" for name in chosen if name not in known]:
        raise ValueError(f"{method} has no {', '.join(strange)}: leave it out")
    values = typed(pairs(words) | chosen, known, f"{method} has no setting")
    if blur is not None and values.get("epochs", 1) != 1:
        raise ValueError("tasks that fade into each other pass by once: leave out --epochs")
    recipe = recipe_for(benchmark if blur is None else f"{benchmark}-blurred", method)
    for_training = {name: value for name, value in values.items() if name in TRAINING_KINDS}
    for_method = {name: value for name, value in values.items() if name not in TRAINING_KINDS}
    return Job(
        benchmark,
        method,
        seed,
        tasks,
        single_head,
        blur,
        **({"hidden": hidden} if hidden else {}),
        training=recipe.training | for_training,
        settings=recipe.settings | for_method,
        device=device,
    )


def pairs(words: Iterable[str]) -> dict[str, Any]:
    """Return the keys and values of words such as ``lr=0.1``."""
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not (separator and key):
            raise ValueError(f"--set takes KEY=VALUE, not {word!r}")
        found[key] = value
    return found
