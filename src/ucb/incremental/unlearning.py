"""Taking examples, waves and classes out of a model again.

The head knows of its examples only G = sum phi phi^T, B = sum phi y^T and how many there were, and these sums are exact
(:mod:`ucb.incremental.frozen`). So with the data at hand, or with a wave's own sums, what is left after a subtraction
is to the last bit what the other examples alone would have made, and so are the scores that follow from it. Statistics
of held-out examples are kept by wave and go with it. What stays nevertheless is said in the report.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ucb.bayes.conjugate import ConjugateHead
from ucb.checks import find_device
from ucb.data.readers import ExampleReader, Skipped
from ucb.data.readers.reader import count_words, say_first
from ucb.incremental.frozen import FrozenTrunkModel
from ucb.incremental.inputs import ROWS, Data, read_labelled
from ucb.incremental.model import Model
from ucb.incremental.trunks import SAMPLED
from ucb.incremental.wave_file import count_retired
from ucb.incremental.waves import (
    Wave,
    hash_examples,
    hash_wave,
    identify,
    list_choices,
    sum_hashes,
    to_choices,
    wrap,
)
from ucb.observer import Observer

ROUNDING = 1e-9
"""What the least eigenvalue of sums may be below 0, as a share of the largest entry."""


@dataclass
class Removal:
    """What came of unlearning."""

    examples: dict[str, int]
    """How many examples of each class were taken out."""
    waves: list[str] = field(default_factory=list)
    """Waves of which nothing is left."""
    classes: list[str] = field(default_factory=list)
    """Classes that are no longer an answer."""
    remains: list[str] = field(default_factory=list)
    """Sentences that say what stays of the removed examples."""
    skipped: list[Skipped] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Taken:
    """Examples that are to be taken out, as sums."""

    sums: ConjugateHead
    """With an output for each of the model's classes."""
    prints: dict[str, int]
    """The sum of the hashes of each class's examples."""
    fingerprint: str = ""
    """As files of before version 3 have it."""
    skipped: list[Skipped] = field(default_factory=list)

    def counts(self, classes: Sequence[str]) -> dict[str, int]:
        """Return how many examples of each class there are, where there are any."""
        return {name: int(number) for name, number in zip(classes, self.sums.counts.tolist(), strict=True) if number}


def unlearn(
    model: Model,
    data: Data | None = None,
    *,
    wave: str | None = None,
    class_name: str | None = None,
    label: str | None = None,
    device: str = "cpu",
    observer: Observer | None = None,
) -> Removal:
    """Take examples out of a model, which is unchanged if that fails: what `Model.unlearn` does."""
    began, before = time.monotonic(), model.known
    if not isinstance(before, FrozenTrunkModel):
        raise ValueError(f"a model that learns with {model.method} cannot unlearn: its weights are no sums of examples")
    if data is None and wave is None and class_name is None:
        raise ValueError("say what to unlearn: data, a wave or a class")
    if class_name is not None and class_name not in model.classes:
        raise ValueError(f"the model does not know the class {class_name!r}")
    place = None if wave is None else find_wave(model.waves, wave)
    new, learner = copy.copy(model), before.copy()
    learner.to(find_device(device))
    new.learner = learner
    if data is None and place is None:
        assert class_name is not None
        removal = _retire(new, class_name)
    else:
        if data is None:
            assert place is not None
            taken = _take_kept(model, learner, place, class_name)
        else:
            taken = _take_data(new, learner, data, class_name, label, observer or Observer())
        if place is None:
            place = _find_origin(model.waves, taken, model.classes)
        removal = _subtract(new, learner, place, taken)
    learner.repeated = min(max(0.0, learner.repeated), learner.examples)
    learner.to(before.device)
    if learner.examples:
        learner.set_ridge()
    new.calibrate()
    model.__dict__.update(new.__dict__)
    removal.seconds = time.monotonic() - began
    return removal


def find_wave(waves: Sequence[Wave], name: str) -> int:
    """Return the place of a wave by its name."""
    for place, wave in enumerate(waves):
        if wave.name == name:
            return place
    known = ", ".join(repr(wave.name) for wave in waves[-8:])
    raise ValueError(f"the model has no wave {name!r}: the last ones are {known}")


def _take_kept(model: Model, learner: FrozenTrunkModel, place: int, class_name: str | None) -> Taken:
    """Return a wave's own sums as what is to be taken out."""
    wave = model.waves[place]
    if wave.sums is None:
        said = f"the sums of {wave.name!r} were not kept, so its data are needed: name them"
        raise ValueError(f"{said} (`ucb learn --keep-sums` keeps the sums of a wave)")
    if class_name is not None and set(wave.examples) != {class_name}:
        raise ValueError("sums of a wave hold all its classes together: to unlearn one of them its data are needed")
    numbers = model.numbers_of(wave.examples).to(learner.device)
    sums = ConjugateHead(learner.trunk.features, len(model.classes)).to(learner.device)
    sums.gram.copy_(wave.sums.gram)
    sums.moments[:, numbers] = wave.sums.moments.to(learner.device)
    sums.counts[numbers] = wave.sums.counts.to(learner.device)
    return Taken(sums, dict(wave.prints), wave.fingerprint)


def _take_data(
    model: Model,
    learner: FrozenTrunkModel,
    data: Data,
    class_name: str | None,
    label: str | None,
    observer: Observer,
) -> Taken:
    """Return the sums of data as what is to be taken out."""
    examples = read_labelled(model, data, model.label if label is None else label)
    assert examples.labels is not None
    classes = model.numbers_of(examples.labels)
    rows = torch.arange(len(classes))
    if class_name is not None:
        rows = rows[classes == model.classes.index(class_name)]
        if not len(rows):
            raise ValueError(f"the data hold no examples of the class {class_name!r}")
    elif unknown := sorted({examples.labels[row] for row in rows[classes < 0].tolist()}):
        said = f"the model does not know the class {unknown[0]!r}: it was never learnt, or is no longer an answer"
        raise ValueError(f"{said}, so nothing of it can be taken out")
    return sum_up(learner, examples, rows, classes, model.classes, observer)


def sum_up(
    learner: FrozenTrunkModel,
    examples: ExampleReader,
    rows: Tensor,
    classes: Tensor,
    names: Sequence[str],
    observer: Observer,
) -> Taken:
    """Return the sums of some examples, computed as they were when they were learnt."""
    sums = ConjugateHead(learner.trunk.features, len(names)).to(learner.device)
    prints, hashes, done = torch.zeros(len(names), dtype=torch.int64), [torch.zeros(0, dtype=torch.int64)], 0
    for positions, x in examples.batches(rows, ROWS):
        own = classes[positions]
        sums.add(learner.features(x), own.to(learner.device))
        prints += sum_hashes(hash_examples(x), own, len(names))
        hashes.append(hash_examples(x, [names[number] for number in own.tolist()]))
        done += len(positions)
        observer.moved(done, len(rows))
    if not done:
        raise ValueError(f"none of the {len(rows)} examples can be read{say_first(': ', examples.skipped)}")
    found = {names[number]: int(prints[number]) for number in sums.counts.nonzero().flatten().tolist()}
    return Taken(sums, found, hash_wave(torch.cat(hashes)), list(examples.skipped))


def _find_origin(waves: Sequence[Wave], taken: Taken, classes: Sequence[str]) -> int:
    """Return the wave that examples came with: the one they are the whole of, or the only one they can be a part of."""
    counts = taken.counts(classes)
    same = {identify(taken.prints, counts), taken.fingerprint} - {""}
    whole = [place for place, wave in enumerate(waves) if wave.identity in same]
    if whole:
        return whole[-1]
    able = [place for place, wave in enumerate(waves) if not _find_fault(wave, taken, counts)]
    if len(able) == 1:
        return able[0]
    if able:
        names = ", ".join(repr(waves[place].name) for place in able[:8])
        raise ValueError(f"these examples can have come with any of the waves {names}: name one with --wave")
    near = [wave for wave in waves if all(number <= wave.examples.get(name, 0) for name, number in counts.items())]
    faults = " and ".join(dict.fromkeys(_find_fault(wave, taken, counts) for wave in (near or waves)[-2:]))
    raise ValueError(f"no wave had these examples: {faults}")


def _find_fault(wave: Wave, taken: Taken, counts: Mapping[str, int]) -> str:
    """Say why examples cannot be a part of a wave; nothing if they can."""
    for name, number in counts.items():
        known = wave.examples.get(name, 0)
        if number > known:
            what = count_words(known, "example", "examples")
            return f"the wave {wave.name!r} has {what} of {name!r}, and these are {number}"
        if number == known and name in wave.prints and wave.prints[name] != taken.prints[name]:
            return f"the wave {wave.name!r} has other examples of {name!r} than these {number}"
    return ""


def _subtract(model: Model, learner: FrozenTrunkModel, place: int, taken: Taken) -> Removal:
    """Take sums out of a model and of one of its waves."""
    wave, counts = model.waves[place], taken.counts(model.classes)
    is_same = wave.identity in {identify(taken.prints, counts), taken.fingerprint} - {""}
    if not is_same and (fault := _find_fault(wave, taken, counts)):
        raise ValueError(f"they cannot be taken out: {fault}")
    is_whole = counts == wave.examples
    if is_whole and wave.sums is not None:  # they also hold examples of classes that are no longer an answer
        taken = replace(_take_kept(model, learner, place, None), skipped=taken.skipped)
    head, examples, unassigned = learner.head, learner.examples, learner.repeated - sum(w.repeated for w in model.waves)
    head.gram -= taken.sums.gram
    head.moments -= taken.sums.moments
    head.counts -= taken.sums.counts
    head.set_ridge(head.ridge)  # what was worked out before is of no use
    _refuse_foreign(head)
    share = sum(counts.values()) / sum(wave.examples.values())
    # Files of before version 3 do not say which wave repeated others: each is then taken to have done its part.
    learner.repeated -= share * wave.repeated + max(0.0, unassigned) * sum(counts.values()) / examples
    removal = Removal(counts, skipped=taken.skipped, remains=_say_what_stays(model, place, is_whole))
    if retired := count_retired(head):
        what = count_words(retired, "example of a class that is", "examples of classes that are")
        removal.remains.append(f"the features of {what} no longer an answer stay in the sums")
    left = [] if is_whole else [_reduce(wave, taken, counts, model.classes, 1 - share)]
    model.waves = [*model.waves[:place], *left, *model.waves[place + 1 :]]
    if is_whole:
        removal.waves = [wave.name]
        model.waves = [forget_effect(each, wave.name) for each in model.waves]
        same = [number for number, each in enumerate(model.waves) if each.identity and each.identity == wave.identity]
        if same and not wave.repeated:  # the first of them stands for all now
            learner.repeated -= model.waves[same[0]].repeated
            model.waves[same[0]] = replace(model.waves[same[0]], repeated=0.0)
    removal.classes = [name for name, number in zip(model.classes, head.counts.tolist(), strict=True) if number == 0]
    drop_classes(model, removal.classes)
    return removal


def _refuse_foreign(head: ConjugateHead) -> None:
    """Refuse sums that are no longer those of any examples: what was taken out was never in, or in another class.

    Of examples with features phi and classes y, sum (phi, y) (phi, y)^T has no eigenvalue below 0.
    """
    size, rest = len(head.gram), head.gram[:, -1:] - head.moments.sum(1, keepdim=True)
    moments, counts = torch.cat([head.moments, rest], 1), torch.cat([head.counts, rest[-1]])
    whole = torch.zeros(size + len(counts), size + len(counts), dtype=torch.float64, device=head.gram.device)
    whole[:size, :size], whole[:size, size:], whole[size:, :size] = head.gram, moments, moments.T
    whole.diagonal()[size:] = counts
    whole.diagonal().add_(ROUNDING * float(whole.diagonal().max().clamp_min(1.0)))
    if bool((counts < 0).any()) or int(torch.linalg.cholesky_ex(whole).info):
        raise ValueError("these examples were never learnt so: without them the sums would be those of no data at all")


def _reduce(wave: Wave, taken: Taken, counts: Mapping[str, int], classes: Sequence[str], share: float) -> Wave:
    """Return a wave without some of its examples."""
    examples = {name: number - counts.get(name, 0) for name, number in wave.examples.items()}
    left = {name: number for name, number in examples.items() if number}
    prints = {name: wrap(wave.prints[name] - taken.prints.get(name, 0)) for name in left if name in wave.prints}
    sums = None
    if wave.sums is not None:
        old, new = list(wave.examples), list(left)
        sums = ConjugateHead(len(wave.sums.gram) - 1, len(new))
        at, numbers = [old.index(name) for name in new], [classes.index(name) for name in new]
        sums.gram.copy_(wave.sums.gram - taken.sums.gram.cpu())
        sums.moments.copy_(wave.sums.moments[:, at] - taken.sums.moments.cpu()[:, numbers])
        sums.counts.copy_(wave.sums.counts[at] - taken.sums.counts.cpu()[numbers])
        _refuse_foreign(sums)
    held_out = {name: figures for name, figures in wave.held_out.items() if name in left}
    own: dict[str, Any] = {"examples": left, "held_out": held_out, "fingerprint": "", "prints": prints, "sums": sums}
    return replace(wave, repeated=min(share * wave.repeated, sum(left.values())), **own)


def forget_effect(wave: Wave, name: str) -> Wave:
    """Return a wave that no longer names another one that is gone."""
    is_named = wave.largest_effect is not None and wave.largest_effect[0] == name
    return replace(wave, largest_effect=None) if is_named else wave


def _say_what_stays(model: Model, place: int, is_whole: bool) -> list[str]:
    """Return sentences about what a model keeps of examples that are taken out of a wave."""
    wave, later, found = model.waves[place], model.waves[place + 1 :], []
    if isinstance(model.known, FrozenTrunkModel) and model.known.trunk.is_made:
        found.append(
            f"what the trunk took from up to {SAMPLED:,} examples of the first wave that was learnt stays in it"
        )
    if not is_whole:
        found.append(f"what held-out examples of {wave.name!r} said about doubts and probabilities stays, as sums")
    elif model.earlier is not None and not bool(wave.statistics.moments.any()):
        found.append("what its held-out examples said is part of one sum over waves of an older file, and stays")
    own = {model.classes.index(name) for name in wave.examples}
    if judged := sum(bool(own & set(list_choices(each.choices))) for each in later):
        what = count_words(judged, "later wave was", "later waves were")
        found.append(f"{what} judged by a model that knew these examples: those figures stay")
    if any(each.repeated for each in later):
        found.append("a later wave counts as a partial repetition of earlier ones, which it may not be any more")
    return found


def _retire(model: Model, name: str) -> Removal:
    """Let a class no longer be an answer, without its data."""
    learner = model.known
    assert isinstance(learner, FrozenTrunkModel)
    number = int(learner.head.counts[model.classes.index(name)])
    what = count_words(number, "example", "examples")
    said = f"the features of its {what} stay in the sums, as examples of no class"
    drop_classes(model, [name])
    return Removal({}, classes=[name], remains=[said])


def drop_classes(model: Model, names: Sequence[str]) -> None:
    """Take classes out of a model: their outputs, and what waves say of them. Waves without a class go."""
    if not names:
        return
    learner = model.known
    assert isinstance(learner, FrozenTrunkModel)
    kept = [number for number, name in enumerate(model.classes) if name not in names]
    pick_outputs(learner.head, torch.tensor(kept, dtype=torch.int64, device=learner.device)[:, None])
    moved = {old: new for new, old in enumerate(kept)}
    model.classes = [model.classes[number] for number in kept]
    kept_waves = [left for wave in model.waves if (left := _without_classes(wave, names, moved)).examples]
    for gone in {wave.name for wave in model.waves} - {wave.name for wave in kept_waves}:
        kept_waves = [forget_effect(wave, gone) for wave in kept_waves]
    model.waves = kept_waves


def _without_classes(wave: Wave, names: Sequence[str], moved: Mapping[int, int]) -> Wave:
    examples = {name: value for name, value in wave.examples.items() if name not in names}
    held_out = {name: value for name, value in wave.held_out.items() if name not in names}
    prints = {name: value for name, value in wave.prints.items() if name not in names}
    sums = wave.sums
    if sums is not None and len(examples) < len(wave.examples):
        sums = copy.deepcopy(sums)
        at = [place for place, name in enumerate(wave.examples) if name not in names]
        pick_outputs(sums, torch.tensor(at, dtype=torch.int64)[:, None])
    choices = to_choices(moved[number] for number in list_choices(wave.choices) if number in moved)
    fingerprint = wave.fingerprint if len(examples) == len(wave.examples) else ""
    own: dict[str, Any] = {"examples": examples, "held_out": held_out, "prints": prints, "sums": sums}
    repeated = wave.repeated * sum(examples.values()) / sum(wave.examples.values())
    return replace(wave, choices=choices, fingerprint=fingerprint, repeated=repeated, **own)


def pick_outputs(head: ConjugateHead, columns: Tensor) -> None:
    """Let each output of a head be the sum of some of the present ones: ``columns`` [outputs, some]."""
    head.moments = head.moments[:, columns].sum(2)
    head.counts = head.counts[columns].sum(1)
    head.set_ridge(head.ridge)  # what was worked out before is of no use
