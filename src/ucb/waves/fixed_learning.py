"""How the fixed way learns a wave: one pass over the examples, which are added to sums.

The pass is cut into portions, and after each the sums can be kept: taken up again, they become the same sums to the
last bit, because the portions and the order of additions are the same.

The ridge is chosen before the held-out examples are asked about, so that what is measured is what will answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.data.readers import ExampleReader as Examples
from ucb.data.readers import Skipped
from ucb.seeds import generator_for
from ucb.waves.effects import effects_on_fixed
from ucb.waves.familiar import Familiar
from ucb.waves.fixed import FixedWay
from ucb.waves.holding_out import asked_among
from ucb.waves.opinion import Asked, rows_together
from ucb.waves.order import Order, Outcome
from ucb.waves.prints import Copies, prints
from ucb.waves.reading import ROWS, portions
from ucb.waves.trunks import LOOKED_AT, fresh_trunk

if TYPE_CHECKING:
    from ucb.waves.model import Model


@dataclass
class Pass:
    """Where the pass over the examples that are not held out stands."""

    counts: Tensor
    """Examples of each class that were learnt."""
    done: int = 0
    prints: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    familiar: Tensor = field(default_factory=lambda: torch.zeros(2, 0, dtype=torch.float64))
    """What tells whether the wave was learnt before."""
    skipped: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class HeldOut:
    """The held-out examples that could be read."""

    features: Tensor
    target: Tensor
    prints: Tensor


def learn_fixed(model: Model, order: Order) -> Outcome[FixedWay]:
    """Learn a wave; the model's own way is left as it is."""
    train = torch.nonzero(~order.held_out).squeeze(1)
    found = None if order.keeper is None else order.keeper.load()
    before = model.way
    assert before is None or isinstance(before, FixedWay)
    way = _begun(model, order, train, found)
    at = Pass(torch.zeros(len(model.classes), dtype=torch.int64)) if found is None else Pass(**found["pass"])
    skipped = [Skipped(*each) for each in at.skipped]
    familiar = Familiar(before, order, at.familiar)
    _learn(way, order, train, at, familiar)
    if not int(at.counts.sum()):
        raise ValueError(f"none of the {len(train)} examples can be read{_why(order.examples)}")
    held = _read(way, order, familiar)
    copies = Copies(at.prints, held.prints)
    stamp = order.stamped(copies.every)
    new = (1 - familiar.share) * copies.different
    way.repeated += (1 - new) * len(at.prints)
    way.settle()
    some = asked_among(len(held.target), order.seed).to(way.device)
    asking = way.without(held.features, held.target, copies.of_held_out)
    asked = Asked(asking.opinion_of, held.features[some], held.target[some], rows_together(way.numbers_a_row))
    given = order.calibration.learn(asked, 1 - familiar.share)
    way.repeated += (1 - new) * len(held.prints)
    way.add(held.features, held.target)
    counts = at.counts + torch.bincount(held.target.cpu(), minlength=len(model.classes))
    order.watcher.moved(len(order.classes), len(order.classes))
    effects = effects_on_fixed(before, way, model.classes, model.waves) if before else []
    return Outcome(way, given, asked.target.cpu(), counts, effects, skipped, stamp, familiar.share)


def _learn(way: FixedWay, order: Order, train: Tensor, at: Pass, familiar: Familiar) -> None:
    """Go through the examples that are not held out, from where the pass stands."""
    skipped, found = list(at.skipped), [at.prints]
    for reached, batches in portions(order.examples, train, at.done):
        for positions, x in batches:
            own, features = order.classes[positions], way.features(x)
            familiar.ask(features, own, positions)
            way.add(features, own.to(way.device))
            at.counts += torch.bincount(own, minlength=len(at.counts))
            found.append(prints(x, order.labels_of(positions)))
        at.done = reached
        order.watcher.moved(reached, len(order.classes))
        if order.keeper is not None and order.keeper.is_due and reached < len(train):
            at.prints, at.familiar = torch.cat(found), familiar.found
            at.skipped = [*skipped, *([one.name, one.why] for one in order.examples.skipped)]
            order.keeper.save(_state(way, at))
    at.prints = torch.cat(found)


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


def _read(way: FixedWay, order: Order, familiar: Familiar) -> HeldOut:
    """Read the held-out examples."""
    features, rows = [torch.zeros(0, way.trunk.features, device=way.device)], [torch.zeros(0, dtype=torch.int64)]
    found = [torch.zeros(0, dtype=torch.int64)]
    for positions, x in order.examples.batches(torch.nonzero(order.held_out).squeeze(1), ROWS):
        features.append(way.features(x))
        rows.append(positions)
        found.append(prints(x, order.labels_of(positions)))
        familiar.ask(features[-1], order.classes[positions], positions)
    return HeldOut(torch.cat(features), order.classes[torch.cat(rows)].to(way.device), torch.cat(found))


def _state(way: FixedWay, at: Pass) -> dict[str, Any]:
    return {"trunk": dict(way.trunk.state_dict()), "head": dict(way.head.state_dict()), "pass": vars(at).copy()}
