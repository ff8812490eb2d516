"""An order and some settings become a whole job: the recipe's settings, and over them those that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ucb.engine.job import TRAINING_KINDS, Job, method_named
from ucb.engine.recipes import Recipe, recipe_for
from ucb.engine.settings import kinds_of, typed
from ucb.nets import net_options


def known_settings(order: Job) -> dict[str, Any]:
    """Return every setting of the order's training, net and method, and its type."""
    return TRAINING_KINDS | net_options(order.net_name) | kinds_of(method_named(order.method).settings_type)


def kind_of(order: Job) -> str:
    """Return the name that recipes of such an order are kept under."""
    return order.benchmark if order.blur is None else f"{order.benchmark}-blurred"


def with_recipe(order: Job, values: Mapping[str, Any], recipe: Recipe | None = None) -> Job:
    """Return the job: what ``order`` says to learn, with the recipe's settings and over them ``values``.

    Without a ``recipe`` it is the one of the method on the benchmark.
    """
    values = typed(values, known_settings(order), f"{order.method} has no setting")
    if order.blur is not None and values.get("epochs", 1) != 1:
        raise ValueError("tasks that fade into each other pass by once: leave out --epochs")
    if recipe is None:
        recipe = recipe_for(kind_of(order), order.method)
    for_net = net_options(order.net_name)
    parts: dict[str, dict[str, Any]] = {"training": {}, "net_options": {}, "settings": {}}
    for name, value in values.items():
        part = "training" if name in TRAINING_KINDS else "net_options" if name in for_net else "settings"
        parts[part][name] = value
    training, settings = recipe.training | parts["training"], recipe.settings | parts["settings"]
    if order.blur is not None:
        training |= {"epochs": 1}
    return replace(order, net_options=parts["net_options"], training=training, settings=settings)
