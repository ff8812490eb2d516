"""The fixed way as facts and tensors, and back. Of the symmetric sums one half is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.waves.fields import FieldError, Fields, tensor
from ucb.waves.fixed import FixedWay
from ucb.waves.trunks import fresh_trunk, serves_patches, sizes_of

if TYPE_CHECKING:
    from ucb.waves.model import Model

MOST_UNITS = 100_000


def fixed_parts(way: FixedWay) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what JSON holds of it, and its tensors."""
    head = way.head
    half = torch.cat([row[: place + 1] for place, row in enumerate(head.gram)])
    tensors = {f"trunk.{name}": value for name, value in way.trunk.state_dict().items()}
    tensors |= {"head.gram": half, "head.moments": head.moments, "head.counts": head.counts}
    return {"trunk": way.trunk.facts, "ridge": head.ridge}, tensors


def fixed_from(model: Model, facts: Fields, tensors: Mapping[str, Tensor]) -> FixedWay:
    """Return the way that facts and tensors describe, once all of them are as they must be."""
    facts.only("trunk", "ridge")
    known = _trunk_facts(model, Fields(facts.get("trunk"), "way.trunk"))
    sizes = sizes_of(model.shape or (), known)
    own = {name: tensor(tensors, f"trunk.{name}", shape, torch.float32) for name, shape in sizes.tensors.items()}
    size, classes = sizes.features + 1, len(model.classes)
    half = tensor(tensors, "head.gram", (size * (size + 1) // 2,), torch.float64)
    moments = tensor(tensors, "head.moments", (size, classes), torch.float64)
    counts = tensor(tensors, "head.counts", (classes,), torch.float64)
    if len(tensors) > len(own) + 3:
        raise FieldError("there are tensors that nobody knows")
    if bool((counts < 0).any()):
        raise FieldError("a class has been seen less than 0 times")
    trunk = fresh_trunk(model.shape or (), known)  # no larger than the tensors that were found
    trunk.load_state_dict(own)
    way = FixedWay(trunk, classes, facts.number("ridge", 1e-9, 1e9))
    whole = way.head.gram
    for row, some in enumerate(half.split(list(range(1, size + 1)))):
        whole[row, : row + 1] = some
    whole += whole.tril(-1).T
    way.head.moments.copy_(moments)
    way.head.counts.copy_(counts)
    return way


def _trunk_facts(model: Model, facts: Fields) -> dict[str, Any]:
    kind = facts.one_of("kind", ("patches", "rows"))
    if kind == "patches" and not serves_patches(model.shape or ()):
        raise FieldError("examples of this shape have no patches")
    count = "filters" if kind == "patches" else "units"
    facts.only("kind", count)
    return {"kind": kind, count: facts.whole(count, 1, MOST_UNITS)}
