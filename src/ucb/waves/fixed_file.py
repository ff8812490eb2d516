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
ROUNDING = 1e-6
"""What sums may be off, as a share of the largest that they can be."""


def fixed_parts(way: FixedWay) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what JSON holds of it, and its tensors."""
    head = way.head
    half = torch.cat([row[: place + 1] for place, row in enumerate(head.gram)])
    tensors = {f"trunk.{name}": value for name, value in way.trunk.state_dict().items()}
    tensors |= {"head.gram": half, "head.moments": head.moments, "head.counts": head.counts}
    repeated = {"repeated": way.repeated} if way.repeated else {}
    return {"trunk": way.trunk.facts, "ridge": head.ridge, **repeated}, tensors


def fixed_from(model: Model, facts: Fields, tensors: Mapping[str, Tensor]) -> FixedWay:
    """Return the way that facts and tensors describe, once all of them are as they must be."""
    facts.only("trunk", "ridge", "repeated")
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
    if "spread" in own and bool((own["spread"] <= 0).any()):
        raise FieldError("the tensor trunk.spread must be above 0")
    trunk = fresh_trunk(model.shape or (), known)  # no larger than the tensors that were found
    trunk.load_state_dict(own)
    way = FixedWay(trunk, classes, facts.number("ridge", 1e-9, 1e9))
    whole = way.head.gram
    for row, some in enumerate(half.split(list(range(1, size + 1)))):
        whole[row, : row + 1] = some
    whole += whole.tril(-1).T
    way.head.moments.copy_(moments)
    way.head.counts.copy_(counts)
    _refuse_impossible(whole, moments, counts)
    if "repeated" in facts.values:  # a model that has learnt nothing twice has no such number
        way.repeated = facts.number("repeated", 0, float(counts.sum()))
    return way


def _refuse_impossible(gram: Tensor, moments: Tensor, counts: Tensor) -> None:
    """Refuse sums that no examples have.

    With phi the features of an example, whose last one is 1, and y its class as 1 and 0, sum phi phi^T and sum phi y^T
    have the counts in their last rows, the second adds up to the last column of the first, and by Cauchy-Schwarz no
    entry is larger than the squares of its row and of its column allow. That is cheap to see, and keeps what follows
    within reason; whether the sums can be factored is seen when they are.
    """
    examples, lengths = counts.sum(), gram.diagonal().clamp_min(0).sqrt()
    limit = lengths * examples.sqrt() * ROUNDING
    possible = bool(examples > 0) and bool((gram.diagonal() >= 0).all())
    possible &= bool(torch.isclose(gram[-1, -1], examples, rtol=ROUNDING))
    possible &= bool(torch.isclose(moments[-1], counts, rtol=ROUNDING).all())
    possible &= bool(((moments.sum(1) - gram[:, -1]).abs() <= limit).all())
    possible &= _within(moments, lengths, counts.sqrt()) and _within(gram, lengths, lengths)
    if not possible:
        raise FieldError("the sums of its head are not those of any data")


def _within(products: Tensor, rows: Tensor, columns: Tensor) -> bool:
    """Whether sums of products are no larger than Cauchy and Schwarz allow; a few rows at a time."""
    return all(
        bool((some.abs() <= (1 + ROUNDING) * length[:, None] * columns).all())
        for some, length in zip(products.split(256), rows.split(256), strict=True)
    )


def _trunk_facts(model: Model, facts: Fields) -> dict[str, Any]:
    kind = facts.one_of("kind", ("patches", "rows"))
    if kind == "patches" and not serves_patches(model.shape or ()):
        raise FieldError("examples of this shape have no patches")
    count = "filters" if kind == "patches" else "units"
    facts.only("kind", count)
    return {"kind": kind, count: facts.whole(count, 1, MOST_UNITS)}
