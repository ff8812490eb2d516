"""Several models become one, and several classes become one.

Models that learnt at different places with the same trunk hold sums over different examples. The sums of all examples
are the sums of these sums, exactly, so the merged model is the one that would have learnt everything at one place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

import torch
from torch import Tensor

from ucb.bayes.conjugate import ConjugateHead
from ucb.incremental.calibration import HeldOutStatistics
from ucb.incremental.frozen import FrozenTrunkModel
from ucb.incremental.model import Model
from ucb.incremental.unlearning import pick_outputs
from ucb.incremental.waves import LONGEST_NAME, Wave, list_choices, to_choices, wrap

T = TypeVar("T")


def merge(models: Sequence[Model], names: Sequence[str]) -> tuple[Model, list[str]]:
    """Return one model that knows what all of them know, and remarks; ``names`` tell the models apart.

    A wave that several of them have learnt counts once if its sums were kept in one of them, and is refused otherwise.
    """
    if len(models) < 2:
        raise ValueError("at least two models can be merged")
    first = models[0]
    for model, name in zip(models, names, strict=True):
        if fault := find_difference(first, model):
            raise ValueError(f"{name} cannot be merged with {names[0]}: {fault}")
    classes = list(dict.fromkeys(each for model in models for each in model.classes))
    whole, remarks = copy.copy(first), list[str]()
    whole.classes, whole.waves = classes, []
    learner = FrozenTrunkModel(_learner(first).trunk, len(classes), grid=_learner(first).grid)
    learner.to(_learner(first).device)
    whole.learner = learner
    known: dict[str, int] = {}
    kept = {wave.identity: wave for model in models for wave in model.waves if wave.sums is not None}
    contents: dict[tuple[int, int], int] = {}
    for place, (model, name) in enumerate(zip(models, names, strict=True)):
        numbers = whole.numbers_of(model.classes)
        _add(learner, _learner(model).head, numbers)
        learner.repeated += _learner(model).repeated
        renamed = dict[str, str]()
        for wave in model.waves:
            owner = known.get(wave.identity, place) if wave.identity else place
            if owner != place:
                if wave.identity not in kept:
                    said = f"the wave {wave.name!r} of {name} is also in {names[owner]}, and would count twice"
                    raise ValueError(f"{said}: unlearn it in one of them first")
                own = kept[wave.identity]
                assert own.sums is not None
                _add(learner, own.sums, whole.numbers_of(own.examples), -1)
                learner.repeated -= wave.repeated
                remarks.append(f"the wave {wave.name!r} is in several of the models, and counts once")
                continue
            known.setdefault(wave.identity, place)
            for key in ((wave.prints.get(each, 0), number) for each, number in wave.examples.items()):
                if key[0] and contents.setdefault(key, place) != place:
                    remarks.append(f"examples of the wave {wave.name!r} of {name} are in another of the models, too")
            renamed[wave.name] = _free_name(wave.name, name, {each.name for each in whole.waves})
            moved = _move(wave, numbers.tolist(), renamed[wave.name], renamed)
            if moved.identity in kept and moved.sums is None:
                own = kept[moved.identity]
                moved = replace(moved, sums=own.sums) if list(own.examples) == list(moved.examples) else moved
            whole.waves.append(moved)
    learner.repeated = min(max(0.0, learner.repeated), learner.examples)
    whole.earlier = _merge_earlier(models)
    if learner.examples:
        learner.set_ridge()
    whole.calibrate()
    return whole, remarks


def find_difference(first: Model, other: Model) -> str:
    """Say why two models cannot be merged; nothing if they can."""
    for model in first, other:
        if model.method != "fixed":
            return f"models that learn with {model.method} cannot be merged: their weights are no sums of examples"
    a, b = _learner(first), _learner(other)
    if (first.shape, first.columns, first.kinds) != (other.shape, other.columns, other.kinds):
        return "they learn examples of different forms"
    is_same = a.trunk.facts == b.trunk.facts and a.grid == b.grid and a.trunk.features == b.trunk.features
    if is_same and a.trunk.is_made:
        own = b.trunk.state_dict()
        is_same = all(torch.equal(value, own[name]) for name, value in a.trunk.state_dict().items())
    if not is_same:
        said = "their trunks differ, so that the same example has other features"
        return f"{said}: models that are to be merged begin as copies of one that `ucb init` makes"
    return ""


def rename(model: Model, old: str, new: str) -> bool:
    """Give a class another name; if there is a class of that name, both become one. Return whether they did."""
    from ucb.incremental.checked_file import LONGEST_NAME as LONGEST
    from ucb.incremental.checked_file import check_text

    if old not in model.classes:
        raise ValueError(f"the model does not know the class {old!r}")
    if not 0 < len(new) <= LONGEST:
        raise ValueError(f"the name of a class must have 1 to {LONGEST} characters")
    check_text(f"the name {new[:30]!r} of a class", new)
    if old == new:
        raise ValueError(f"the class is called {old!r} already")
    learner = model.known
    if new not in model.classes:
        model.classes = [new if name == old else name for name in model.classes]
        model.waves = [_rename(wave, old, new) for wave in model.waves]
        return False
    if not isinstance(learner, FrozenTrunkModel):
        raise ValueError(f"a model that learns with {model.method} cannot join classes: there is {new!r} already")
    learner = learner.copy()
    gone, kept = model.classes.index(old), model.classes.index(new)
    pick_outputs_joined(learner.head, gone, kept)
    moved = [
        kept - (kept > gone) if number == gone else number - (number > gone) for number in range(len(model.classes))
    ]
    model.learner, model.classes = learner, [name for name in model.classes if name != old]
    waves = (_rename(wave, old, new) for wave in model.waves)
    model.waves = [
        replace(wave, choices=to_choices(moved[number] for number in list_choices(wave.choices))) for wave in waves
    ]
    learner.set_ridge()
    model.calibrate()
    return True


def pick_outputs_joined(head: ConjugateHead, gone: int, kept: int) -> None:
    """Add one output to another, and take it away."""
    head.moments[:, kept] += head.moments[:, gone]
    head.counts[kept] += head.counts[gone]
    left = [number for number in range(len(head.counts)) if number != gone]
    pick_outputs(head, torch.tensor(left, device=head.gram.device)[:, None])


def _learner(model: Model) -> FrozenTrunkModel:
    if not isinstance(model.learner, FrozenTrunkModel):
        raise ValueError("a model that has no trunk yet cannot be merged")
    return model.learner


def _add(learner: FrozenTrunkModel, sums: ConjugateHead, numbers: Tensor, times: float = 1) -> None:
    """Add sums, whose outputs are the classes ``numbers``, to a model's."""
    head, numbers = learner.head, numbers.to(learner.device)
    head.gram += times * sums.gram.to(learner.device)
    head.moments.index_add_(1, numbers, times * sums.moments.to(learner.device))
    head.counts.index_add_(0, numbers, times * sums.counts.to(learner.device))
    learner.set_ridge(head.ridge)  # what was worked out before is of no use


def _free_name(name: str, model: str, taken: set[str]) -> str:
    """Return the name of a wave, with that of its model where another has the same."""
    if name not in taken:
        return name
    name, model = name[: LONGEST_NAME // 2], model[: LONGEST_NAME // 4]
    names = (f"{name} ({model})" if number == 1 else f"{name} ({model}, {number})" for number in count(1))
    return next(each for each in names if each not in taken)


def _move(wave: Wave, numbers: Sequence[int], name: str, renamed: Mapping[str, str]) -> Wave:
    """Return a wave of one model as a wave of the merged one, where its model's classes have the ``numbers``."""
    effect = wave.largest_effect
    if effect is not None:
        effect = (renamed[effect[0]], effect[1]) if effect[0] in renamed else None
    choices = to_choices(numbers[each] for each in list_choices(wave.choices))
    return replace(wave, name=name, choices=choices, largest_effect=effect)


def _merge_earlier(models: Sequence[Model]) -> tuple[HeldOutStatistics, int] | None:
    """Return the statistics of waves in older files, each weighted by how many classes there were."""
    every = [model.earlier for model in models if model.earlier is not None]
    if not every:
        return None
    most = max(classes for _, classes in every)
    parts = zip(*(statistics for statistics, _ in every), strict=True)
    sums = [sum(part * (classes / most) for part, (_, classes) in zip(each, every, strict=True)) for each in parts]
    return HeldOutStatistics(*sums), most


def _join(found: Mapping[str, T], old: str, new: str, add: Callable[[T, T], T]) -> dict[str, T]:
    """Return a table by class in which one has another name, or is added to the one that has it."""
    if old not in found:
        return dict(found)
    if new not in found:
        return {new if name == old else name: value for name, value in found.items()}
    both = add(found[new], found[old])
    return {name: both if name == new else value for name, value in found.items() if name != old}


def _rename(wave: Wave, old: str, new: str) -> Wave:
    """Return a wave in which a class has another name, or is joined with the one that has it."""
    if old not in wave.examples and old not in wave.held_out:
        return wave
    examples = _join(wave.examples, old, new, lambda a, b: a + b)
    prints = _join(wave.prints, old, new, lambda a, b: wrap(a + b))
    held_out = _join(wave.held_out, old, new, lambda a, b: (a[0] + b[0], a[1] + b[1]))
    sums, names = wave.sums, list(wave.examples)
    if sums is not None and old in names and new in names:
        sums = copy.deepcopy(sums)
        pick_outputs_joined(sums, names.index(old), names.index(new))
    return replace(wave, examples=examples, prints=prints, held_out=held_out, fingerprint="", sums=sums)
