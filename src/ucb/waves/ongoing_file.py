"""The ongoing way as facts and tensors, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ucb.bayes import gaussians
from ucb.waves.fields import FieldError, Fields, checked_whole, tensor
from ucb.waves.nets import NAMES, checked_net, widest_layer
from ucb.waves.ongoing import Doubt, OngoingWay

if TYPE_CHECKING:
    from ucb.waves.model import Model


def ongoing_parts(way: OngoingWay) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what JSON holds of it, and its tensors."""
    facts = {"net": way.net_name, "heads": way.heads, "size": way.size, "seed": way.seed}
    return facts | ({} if way.doubt is None else {"doubt": list(way.doubt)}), way.tensors()


def ongoing_from(model: Model, facts: Fields, tensors: Mapping[str, Tensor]) -> OngoingWay:
    """Return the way that facts and tensors describe, once all of them are as they must be."""
    facts.only("net", "heads", "size", "seed", "doubt")
    shape = model.shape or ()
    net = checked_net(facts.one_of("net", NAMES), shape)
    heads = facts.list("heads", lambda where, value: _head(where, value, len(model.classes)))
    if len(heads) > len(model.waves) or {number for head in heads for number in head} != set(range(len(model.classes))):
        raise FieldError("way.heads do not fit waves and classes")
    _refuse_if_too_large(shape, net, heads, tensors)
    way = OngoingWay(shape, net, heads, facts.whole("seed"))
    way.settle(len(heads), facts.whole("size", 1))
    if "doubt" in facts.values:  # earlier versions did not know it
        way.doubt = _doubt(facts.get("doubt"))
    wanted = way.tensors()
    for group in way.optimizer.gaussian_groups():
        wanted[f"scale.{group['name']}"] = wanted[f"precision.{group['name']}"]
    if set(wanted) != set(tensors):
        odd = sorted(set(wanted) ^ set(tensors))[0]
        raise FieldError(f"the tensor {odd[:80]!r} is missing, or nobody knows it")
    found = {name: tensor(tensors, name, tuple(like.shape), like.dtype) for name, like in wanted.items()}
    for name, value in found.items():
        if name.startswith(("precision.", "scale.", "spread")) and bool((value <= 0).any()):
            raise FieldError(f"the tensor {name} must be above 0")
    way.load(found)
    for name, gaussian in gaussians(way.method.net):
        if not bool(((gaussian.sigma > 0) & gaussian.sigma.isfinite()).all()):
            raise FieldError(f"the sigma of {name} is 0 or too large")
    return way


def _doubt(value: Any) -> Doubt:
    are_numbers = isinstance(value, list) and all(isinstance(each, float) and math.isfinite(each) for each in value)
    if not are_numbers or len(value) != len(Doubt._fields) or value[-1] < 0:
        raise FieldError("way.doubt is not three numbers, of which the last is an error")
    return Doubt(*value)


def _head(where: str, value: Any, classes: int) -> list[int]:
    if not isinstance(value, list) or not 2 <= len(value) <= classes:
        raise FieldError(f"{where} is no list of classes")
    numbers = [checked_whole(where, number, most=classes - 1) for number in value]
    if len(set(numbers)) < len(numbers):
        raise FieldError(f"{where} names a class twice")
    return numbers


def _refuse_if_too_large(
    shape: tuple[int, ...], net: str, heads: list[list[int]], tensors: Mapping[str, Tensor]
) -> None:
    """Refuse shape and heads that the tensors cannot belong to, before a net is made for them."""
    held = sum(value.numel() for value in tensors.values())
    inputs, units = widest_layer(net, shape)
    if inputs * units + units * sum(len(head) for head in heads) > held:
        raise FieldError("shape or heads are too large for the weights")
