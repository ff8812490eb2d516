"""How the fixed way learns a wave: one pass over the examples, which are added to sums.

The pass is cut into portions, and after each the sums can be kept: taken up again, they become the same sums to the
last bit, because the portions and the order of additions are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.seeds import generator_for
from ucb.waves.effects import effects_on_fixed
from ucb.waves.fixed import FixedWay
from ucb.waves.holding_out import asked_among
from ucb.waves.opinion import Asked, rows_together
from ucb.waves.order import Order, Outcome
from ucb.waves.reading import ROWS, portions
from ucb.waves.sources import Examples, Skipped
from ucb.waves.trunks import LOOKED_AT, fresh_trunk

if TYPE_CHECKING:
    from ucb.waves.model import Model


def learn_fixed(model: Model, order: Order) -> Outcome[FixedWay]:
    """Learn a wave; the model's own way is left as it is."""
    examples, watcher, classes = order.examples, order.watcher, len(model.classes)
    train = torch.nonzero(~order.held_out).squeeze(1)
    found = None if order.keeper is None else order.keeper.load()
    before = model.way
    assert before is None or isinstance(before, FixedWay)
    way = _begun(model, order, train, found)
    counts = torch.zeros(classes, dtype=torch.int64) if found is None else found["counts"]
    done = 0 if found is None else found["done"]
    skipped = [] if found is None else [Skipped(*each) for each in found["skipped"]]
    for reached, batches in portions(examples, train, done):
        for positions, x in batches:
            own = order.classes[positions]
            way.add(way.features(x), own.to(way.device))
            counts += torch.bincount(own, minlength=classes)
        watcher.moved(reached, len(order.classes))
        if order.keeper is not None and order.keeper.is_due and reached < len(train):
            order.keeper.save(_state(way, counts, reached, [*skipped, *examples.skipped]))
    if not int(counts.sum()):
        raise ValueError(f"none of the {len(train)} examples can be read{_why(examples)}")
    if before is None:  # later waves are measured under the ridge that all data so far have chosen
        way.settle()
    features, target = _read(way, order, torch.nonzero(order.held_out).squeeze(1))
    some = asked_among(len(target), order.seed).to(way.device)
    asked = Asked(way.opinion_of, features[some], target[some], rows_together(way.numbers_a_row))
    given = order.calibration.learn(asked)
    way.add(features, target)
    way.settle()
    counts = counts + torch.bincount(target.cpu(), minlength=classes)
    watcher.moved(len(order.classes), len(order.classes))
    effects = effects_on_fixed(before, way, model.classes, model.waves) if before else []
    return Outcome(way, given, asked.target.cpu(), counts, effects, skipped)


def _begun(model: Model, order: Order, train: Tensor, found: dict[str, Any] | None) -> FixedWay:
    """Return the way to go on with: of earlier waves, of an interrupted pass, or new."""
    assert model.shape is not None
    classes = len(model.classes)
    if model.way is not None:
        assert isinstance(model.way, FixedWay)
        way = model.way.copied()
        way.head.grow(classes)
    else:
        trunk = fresh_trunk(model.shape, seed=order.seed)
        if found is None:
            trunk.look(_sample(order.examples, train, order.seed), order.seed)
        way = FixedWay(trunk, classes)
    if found is not None:
        way.trunk.load_state_dict(found["trunk"])
        way.head.load_state_dict(found["head"])
    way.to(order.device)
    return way


def _sample(examples: Examples, train: Tensor, seed: int) -> Tensor:
    """Return some examples of the first wave, from which the trunk is made."""
    chosen = train[torch.randperm(len(train), generator=generator_for("looked at", seed))[:LOOKED_AT]]
    parts = [x for _, x in examples.batches(chosen.sort().values, ROWS)]
    if not parts:
        raise ValueError(f"none of {len(chosen)} examples can be read{_why(examples)}")
    return torch.cat(parts)


def _why(examples: Examples) -> str:
    return f": {examples.skipped[0].name}: {examples.skipped[0].why}" if examples.skipped else ""


def _read(way: FixedWay, order: Order, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features of some examples, and their classes."""
    features, classes = [torch.zeros(0, way.trunk.features)], [torch.zeros(0, dtype=torch.int64)]
    for positions, x in order.examples.batches(rows, ROWS):
        features.append(way.features(x))
        classes.append(order.classes[positions])
    return torch.cat([part.to(way.device) for part in features]), torch.cat(classes).to(way.device)


def _state(way: FixedWay, counts: Tensor, done: int, skipped: list[Skipped]) -> dict[str, Any]:
    return {
        "trunk": dict(way.trunk.state_dict()),
        "head": dict(way.head.state_dict()),
        "counts": counts,
        "done": done,
        "skipped": [[one.name, one.why] for one in skipped],
    }
