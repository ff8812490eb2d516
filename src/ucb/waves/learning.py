"""One wave: hold some examples out, learn the rest, measure, calibrate, and say what earlier waves felt of it."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ucb.data.readers import ExampleReader as Examples
from ucb.data.readers import Skipped
from ucb.waves.fixed_learning import learn_fixed
from ucb.waves.holding_out import held_out
from ucb.waves.keeping import Keeper
from ucb.waves.ongoing_learning import learn_ongoing
from ucb.waves.order import Order, Outcome
from ucb.waves.reading import Data, as_examples
from ucb.waves.warning import warnings_of
from ucb.waves.watching import Watcher
from ucb.waves.wave import Report, Wave

if TYPE_CHECKING:
    from ucb.waves.model import Model

WORTH_SAYING = 0.5
"""The share of a wave that must seem to be learnt already for it to be said."""


def learn_wave(
    model: Model,
    data: Data,
    name: str | None,
    *,
    label: str | None,
    seed: int,
    device: torch.device,
    epochs: int | None,
    watcher: Watcher,
    keeper: Callable[[Examples, str], Keeper] | None,
    again: bool,
) -> Report:
    """Let a model learn a wave; everything that changes is put into it anew, nothing is changed in place."""
    began = time.monotonic()
    if epochs is not None and model.method == "fixed":
        raise ValueError("the fixed way goes through a wave once: epochs go with the method ucb-ng")
    label = model.label if label is None else label
    examples = as_examples(data, model.shape, label, model.columns)
    assert examples.labels is not None
    title = _title(model, name)
    known = list(model.classes)
    new = sorted(set(examples.labels) - set(known))
    model.classes = known + new
    model.shape, model.columns, model.label = tuple(examples.shape), examples.columns, label
    calibration = copy.deepcopy(model.calibration)
    calibration.fade(len(known), len(model.classes))
    order = Order(
        examples=examples,
        classes=model.numbers_of(examples.labels),
        held_out=held_out(examples.labels, seed, len(model.waves)),
        calibration=calibration,
        seed=seed,
        device=device,
        epochs=epochs,
        watcher=watcher,
        keeper=None if keeper is None else keeper(examples, title),
        known={wave.fingerprint: wave.name for wave in reversed(model.waves)},
        again=again,
    )
    way_of_learning = learn_fixed if model.method == "fixed" else learn_ongoing
    before = model.way
    outcome = way_of_learning(model, order)
    model.way, model.calibration = outcome.way, calibration
    counts = outcome.counts
    _refuse_unread(new, counts[len(known) :])
    remarks = _remarks(order, outcome) + _alone(model.classes, counts, Counter(examples.labels))
    wave = Wave(
        title,
        {model.classes[n]: int(c) for n, c in enumerate(counts) if c},
        _held_out_figures(model.classes, outcome.given, outcome.target),
        outcome.stamp,
    )
    model.waves = [*model.waves, wave]
    return Report(
        wave,
        outcome.effects,
        _once_each([*outcome.skipped, *examples.skipped]),
        [*examples.remarks, *remarks],
        new,
        time.monotonic() - began,
        warnings_of(model.classes, before, outcome),
    )


def _refuse_unread(new: list[str], counts: Tensor) -> None:
    """Refuse new classes of which nothing could be learnt."""
    missing = [name for name, number in zip(new, counts.tolist(), strict=True) if number == 0]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        raise ValueError(f"no example of the class {names} can be read: mend or remove it, then learn again")


def _title(model: Model, name: str | None) -> str:
    taken = {wave.name for wave in model.waves}
    if name is None:
        return next(free for n in count(len(taken) + 1) if (free := f"wave {n}") not in taken)
    if not name.strip() or len(name) > 200:
        raise ValueError(f"a wave's name must have 1 to 200 characters, not {len(name)}")
    if name in taken:
        raise ValueError(f"there is a wave {name!r} already: choose another name")
    return name


def _remarks(order: Order, outcome: Outcome[object]) -> list[str]:
    if outcome.stamp in order.known:
        return [f"these data were learnt before, as {order.known[outcome.stamp]!r}: they are no new evidence"]
    if outcome.familiar < WORTH_SAYING:
        return []
    share = f"{100 * outcome.familiar:.0f} %"
    return [f"the model foresees {share} of these examples as if it had learnt them before: they are no new evidence"]


def _alone(classes: list[str], counts: Tensor, files: Counter[str]) -> list[str]:
    """Warn of classes of which one example can be read, where more were there."""
    found = [classes[number] for number in (counts == 1).nonzero().flatten().tolist()]
    return [f"class {name!r} has only one example that can be read" for name in found if files[name] > 1]


def _held_out_figures(classes: list[str], given: Tensor, target: Tensor) -> dict[str, tuple[int, int]]:
    asked = Counter(target.tolist())
    right = Counter(target[given == target].tolist())
    return {classes[number]: (asked[number], right[number]) for number in sorted(asked)}


def _once_each(skipped: list[Skipped]) -> list[Skipped]:
    """Return each that was left out once, though it may have been tried twice."""
    return list({one.name: one for one in skipped}.values())
