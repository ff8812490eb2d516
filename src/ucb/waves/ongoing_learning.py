"""How the ongoing way learns a wave: the engine's training loop, on the one wave whose data are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.engine.events import Epoch, Observer
from ucb.engine.plateau import Schedule
from ucb.engine.progress import Progress
from ucb.engine.run import Run
from ucb.engine.training import Training
from ucb.stream.examples import Examples as StreamExamples
from ucb.stream.examples import TensorExamples
from ucb.stream.task import Stream, Task
from ucb.waves.effects import effects_on_ongoing
from ucb.waves.familiar import SURE
from ucb.waves.holding_out import asked_among
from ucb.waves.keeping import Keeper
from ucb.waves.nets import checked_net, default_net
from ucb.waves.ongoing import Doubt, OngoingWay
from ucb.waves.opinion import Asked, rows_together
from ucb.waves.order import Order, Outcome
from ucb.waves.prints import prints
from ucb.waves.reading import ROWS
from ucb.waves.watching import Watcher

if TYPE_CHECKING:
    from ucb.waves.model import Model

Pair = tuple[Tensor, Tensor]
EPOCHS = 10
MOST_NUMBERS = 1 << 29
"""Numbers of a wave that are kept in memory while it is learnt: epoch after epoch needs them again."""


def learn_ongoing(model: Model, order: Order) -> Outcome[OngoingWay]:
    """Learn a wave; the model's own way is left as it is."""
    assert model.shape is not None
    before = model.way
    assert before is None or isinstance(before, OngoingWay)
    if order.device.type != "cpu":
        raise ValueError("ucb-ng learns waves on the CPU here: leave --device out")
    own = sorted(set(order.classes.tolist()))
    if len(own) < 2:
        raise ValueError("a wave of one class teaches ucb-ng nothing: it tells a wave's classes apart; use fixed")
    if len(order.classes) * math.prod(model.shape) > MOST_NUMBERS:
        raise ValueError("the wave is too large to be kept in memory, as ucb-ng needs it: split it into several")
    net = before.net_name if before else checked_net(model.net or default_net(model.shape), model.shape)
    model.net = net
    way, head = _begun(model.shape, net, before, own, model.seed)
    train = _kept(order, torch.nonzero(~order.held_out).squeeze(1))
    held = _kept(order, torch.nonzero(order.held_out).squeeze(1))
    if len(train[1]) == 0:
        raise ValueError(f"none of the {len(order.classes)} examples can be read")
    if before is None:
        way.look(train[0])
    names = [model.classes[number] for number in torch.cat([train[1], held[1]]).tolist()]
    stamp = order.stamped(prints(torch.cat([train[0], held[0]]), names))
    familiar, is_sure = share_familiar(before, order, torch.cat([train[0], held[0]]), own)
    _run(way, order, train, held, head)
    way.size = len(train[1])
    some = asked_among(len(held[1]), order.seed)
    asked = Asked(way.opinion, held[0][some], held[1][some], rows_together(way.numbers_a_row))
    given = order.calibration.learn(asked, 1 - familiar)
    way.doubt = _doubt_after(way, order, train[0], asked.x, before, familiar)
    counts = torch.bincount(torch.cat([train[1], held[1]]), minlength=len(model.classes))
    effects = effects_on_ongoing(before, way, model.waves) if before else []
    return Outcome(way, given, asked.target, counts, effects, [], stamp, familiar if is_sure else 0.0)


def share_familiar(before: OngoingWay | None, order: Order, x: Tensor, classes: list[int]) -> tuple[float, bool]:
    """Return the share of a wave that was learnt before, and whether that is sure, from how sure the model is of it.

    The mean log entropy of its answers lies between that of what was learnt and that of what was held out. Of few
    held-out examples that says little; but calibration may well learn less from a wave that looks familiar by chance.
    """
    if before is None or before.doubt is None or not {*classes} <= {number for head in before.heads for number in head}:
        return 0.0, False
    learnt, new, error = before.doubt
    mean, own_error = _mean_doubt(before, order, x)
    if not learnt < new:
        return 0.0, False
    return min(1.0, max(0.0, (new - mean) / (new - learnt))), mean < new - SURE * math.hypot(error, own_error)


def _mean_doubt(way: OngoingWay, order: Order, x: Tensor) -> tuple[float, float]:
    """Return the mean log entropy of the answers to all of these examples, or to 1,000 by chance, and its error."""
    some = x[asked_among(len(x), order.seed)]
    asked = Asked(way.opinion, some, torch.zeros(len(some)), rows_together(way.numbers_a_row))
    found = torch.cat([order.calibration.doubt_of(opinion) for opinion, _ in asked])
    return float(found.mean()), float(found.std(correction=0)) / math.sqrt(len(found))


def _doubt_after(
    way: OngoingWay, order: Order, train: Tensor, held: Tensor, before: OngoingWay | None, familiar: float
) -> Doubt | None:
    """Return what tells learnt examples from new ones after a wave; familiar ones say nothing of the latter."""
    if len(held) == 0:
        return None if before is None else before.doubt
    new, error = _mean_doubt(way, order, held)
    if before is not None and before.doubt is not None and familiar > 0:
        new = (1 - familiar) * new + familiar * before.doubt.held_out
        error = math.hypot((1 - familiar) * error, familiar * before.doubt.error)
    return Doubt(_mean_doubt(way, order, train)[0], new, error)


def _begun(
    shape: Sequence[int], net: str, before: OngoingWay | None, own: list[int], seed: int
) -> tuple[OngoingWay, int]:
    """Return the way to go on with, and its head for the wave's classes: one that knows them all, or a new one."""
    if before is None:
        return OngoingWay(shape, net, [own], seed), 0
    head = before.head_for(own)
    way = OngoingWay(shape, net, [*before.heads, own] if head == len(before.heads) else before.heads, seed)
    way.settle(len(before.heads), before.size)
    way.load(before.tensors())
    return way, head


def _kept(order: Order, rows: Tensor) -> Pair:
    """Return the examples of some rows that can be read, and their classes."""
    shape = tuple(order.examples.shape)
    parts = [torch.zeros(0, *shape, dtype=torch.uint8 if len(shape) == 3 else torch.float32)]
    classes = [torch.zeros(0, dtype=torch.int64)]
    for positions, x in order.examples.batches(rows, ROWS):
        parts.append(x)
        classes.append(order.classes[positions])
    return torch.cat(parts), torch.cat(classes)


def _run(way: OngoingWay, order: Order, train: Pair, held: Pair, head: int) -> None:
    """Train the net on the wave, with one of its heads."""
    own = way.heads[head]
    place = {number: index for index, number in enumerate(own)}

    def ready(x: Tensor, y: Tensor) -> TensorExamples:
        return TensorExamples(way.prepared(x), torch.tensor([place[number] for number in y.tolist()]))

    judged = ready(*(held if len(held[1]) else train))
    now = Task("this wave", tuple(map(str, own)), ready(*train), judged, judged)
    no = Gone()
    gone = [Task(f"head {i + 1}", tuple(map(str, classes)), no, no, no) for i, classes in enumerate(way.heads[:head])]
    epochs = order.epochs or EPOCHS
    observer = Moves(order.watcher, epochs, len(order.classes))
    run = Run(
        Stream("waves", (*gone, now)),
        way.method,
        Training(Schedule(epochs=epochs), eval_samples=2, checkpoint_every=20),
        seed=order.seed,
        device=order.device,
        observer=observer,
        checkpoints=None if order.keeper is None else InProgressFile(order.keeper, head),
        start=Progress(task=head, at_start=[math.nan]),
        evaluated=[head],
    )
    run.resume()
    run.learn_task()


class Gone(StreamExamples):
    """The data of an earlier wave: nobody has them any more."""

    def __len__(self) -> int:
        return 0

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield nothing."""
        return iter(())


class InProgressFile:
    """A run's checkpoints in the file of work in progress, which is of no use once the wave's own task is over."""

    def __init__(self, keeper: Keeper, task: int) -> None:
        self.keeper, self.path, self.task = keeper, keeper.path, task

    @property
    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return self.keeper.is_due

    def save(self, state: dict[str, Any]) -> None:
        """Keep the state beside the model."""
        if state["progress"]["task"] == self.task:
            self.keeper.save({"run": state})

    def load(self) -> dict[str, Any] | None:
        """Return the state to go on from."""
        found = self.keeper.load()
        return None if found is None else found["run"]


class Moves(Observer):
    """Tells a watcher how far the training is, as if each epoch went through a part of the examples."""

    def __init__(self, watcher: Watcher, epochs: int, examples: int) -> None:
        self.watcher, self.epochs, self.examples = watcher, epochs, examples

    def batch_learnt(self, task: int, epoch: int, batch: int, batches: int) -> None:
        """Move on."""
        share = (epoch + batch / batches) / self.epochs
        self.watcher.moved(min(self.examples, int(share * self.examples)), self.examples)

    def epoch_ended(self, epoch: Epoch) -> None:
        """Stay silent: the end says what came of it."""

    def noted(self, sentence: str) -> None:
        """Pass it on."""
        self.watcher.noted(sentence)
