"""One wave: hold some examples out, learn the rest, measure, calibrate, and say what earlier waves felt of it."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ucb.data.readers import ExampleReader, Skipped, fingerprint
from ucb.data.readers.reader import as_text, count_words
from ucb.incremental.calibration import HeldOutStatistics, ScoreCalibration
from ucb.incremental.checked_file import hash_content
from ucb.incremental.inputs import Data, warnings_about
from ucb.incremental.model import Model, Report
from ucb.incremental.progress_file import PAUSE, ProgressFile, lock_model, progress_path, remove_progress
from ucb.incremental.trunks import OWN
from ucb.incremental.waves import Effect, Wave, hash_wave, identify, say_date
from ucb.observer import Observer
from ucb.seeds import generator_for
from ucb.storage import ceilings, read_bytes

if TYPE_CHECKING:
    from ucb.bayes.conjugate import ConjugateHead
    from ucb.incremental.bayesian_net import BayesianNetModel
    from ucb.incremental.frozen import FrozenTrunkModel

HELD_OUT_SHARE = 0.1
MOST_HELD_OUT = 1000
LEAST_TO_HOLD_OUT = 5
"""A class with fewer examples than this holds out none."""
WORTH_SAYING = 0.5
"""The share of a wave that must seem to be learnt already for it to be said."""
WRONG_TO_NAME = 3
"""Held-out examples of a class that must all be wrong before it is named."""


class RepeatedWaveError(ValueError):
    """A wave that the model has learnt before."""


class Pace:
    """Tells an observer how far a wave is, as if all work on it were one pass over its examples."""

    def __init__(self, observer: Observer, examples: int) -> None:
        self.observer, self.examples, self.done = observer, examples, 0.0
        self.work = examples
        """How many examples are read, learnt or judged in all: more, if some are gone through several times."""

    def went_through(self, number: float) -> None:
        """Hear that so much more is done; all is done only when ``finish`` says so."""
        self.done += number
        self.observer.moved(min(int(self.examples * self.done / self.work), self.examples - 1), self.examples)

    def finish(self) -> None:
        """Hear that all is done."""
        self.observer.moved(self.examples, self.examples)


@dataclass(frozen=True)
class WaveRequest:
    """A wave that a learner is asked to learn."""

    examples: ExampleReader
    classes: Tensor
    """The number of each example's class."""
    held_out: Tensor
    """A mask of those by which the result is measured."""
    calibration: ScoreCalibration
    """Learns from the held-out examples; it is a copy, which may be changed in place."""
    seed: int
    device: torch.device
    epochs: int | None
    observer: Observer
    progress: ProgressFile | None
    known: Mapping[str, str]
    """The earlier waves' names by what identifies their content."""
    again: bool
    """Whether a wave that was learnt before is wanted once more."""
    keep_sums: bool = False
    """Whether the wave's own share of the head's sums is wanted."""

    @cached_property
    def pace(self) -> Pace:
        """What tells the observer how far the work is."""
        return Pace(self.observer, len(self.classes))

    def labels_of(self, positions: Tensor) -> list[str]:
        """Return the classes of some examples by name."""
        assert self.examples.labels is not None
        return [self.examples.labels[place] for place in positions.tolist()]

    def refuse_repeated(
        self, classes: Sequence[str], counts: Tensor, prints: Tensor | None, hashes: Tensor
    ) -> str | None:
        """Return the earlier wave with the same content, if there is one; refuse it unless it is wanted ``again``.

        ``counts`` and ``prints``, the sums of hashes, are those of all classes; ``hashes`` are of contents and classes.
        """
        own = [] if prints is None else torch.nonzero(counts).squeeze(1).tolist()
        now = (
            ""
            if prints is None
            else identify({classes[c]: int(prints[c]) for c in own}, {classes[c]: int(counts[c]) for c in own})
        )
        known = self.known.get(now) or self.known.get(hash_wave(hashes))
        if known is not None and not self.again:
            said = f"these data were learnt before, as {known!r}, and count already: leave them out"
            raise RepeatedWaveError(f"{said}, or learn them once more with --again (from Python: again=True)")
        return known


@dataclass(frozen=True)
class WaveOutcome:
    """What learning a wave gave."""

    learner: FrozenTrunkModel | BayesianNetModel
    given: Tensor
    """The classes that were given to held-out examples that could be read and were asked, before they were learnt."""
    target: Tensor
    """Their true classes."""
    counts: Tensor
    """How many examples of each class were learnt from or held out."""
    prints: Tensor | None
    """The sum of the hashes of each class's examples, where it is known."""
    effects: list[Effect]
    statistics: HeldOutStatistics
    """What held-out examples said."""
    skipped: list[Skipped]
    """What was left out before the work was taken up again."""
    repeats: str | None
    """The earlier wave with the same content."""
    familiar: float
    """The share of the wave that seems to have been learnt before."""
    repeated: float = 0.0
    """How many examples count as learnt before."""
    is_overfitted: bool = False
    """Whether, before this wave, there were too few examples for what was learnt to say anything about others."""
    sums: ConjugateHead | None = None
    """The wave's own share of the head's sums, where it is wanted."""


def learn(
    path: str | Path,
    data: Data,
    name: str | None = None,
    *,
    method: str | None = None,
    net: str | None = None,
    trunk: str | nn.Module | None = None,
    weights: str | Path | None = None,
    features: int | None = None,
    embed: bool = False,
    label: str | None = None,
    seed: int | None = None,
    device: str = "cpu",
    epochs: int | None = None,
    observer: Observer | None = None,
    pause: float = PAUSE,
    again: bool = False,
    keep_sums: bool = False,
) -> Report:
    """Learn a wave into the model at ``path``, which is made if there is none: what `ucb learn` does.

    A wave that the model has learnt before is refused, unless it is wanted ``again``. ``trunk``, ``weights`` and
    ``features`` are those of :class:`Model`. With ``embed`` the file holds the weights of a pretrained trunk, too, and
    with ``keep_sums`` the wave's own sums, by which it can be unlearnt.

    The file stays as it was until the wave is learnt, whatever happens; what has been done is kept beside it every
    ``pause`` seconds, and the same call goes on from there.
    """
    path = Path(path)
    if path.is_symlink():
        path = path.resolve()  # the file itself is replaced, not the link
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file for the model")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for the model")
    if embed and isinstance(trunk, nn.Module):
        raise ValueError("a module of your own cannot be put into the model's file: keep it beside the file")
    observer = observer or Observer()
    with lock_model(path):
        if path.exists():
            model = Model.open(path, device, trunk=trunk, weights=weights)
            before: str | None = hashlib.sha256(read_bytes(path, ceilings.MODEL)).hexdigest()
        else:  # the net of the fixed way cannot be chosen, so a named net means ucb-ng
            chosen = method or ("fixed" if net is None else "ucb-ng")
            how: dict[str, Any] = {"net": net, "trunk": trunk, "weights": weights, "features": features}
            model, before = Model(chosen, seed=seed or 0, **how), None
        if method is not None and method != model.method:
            raise ValueError(f"{path} learns with {model.method}, not with {method}: leave --method out")
        if net is not None and net != model.net:
            raise ValueError(f"the net of {path} is {model.net or 'its own trunk'}, not {net}: leave --net out")
        if features is not None and features != (model.features or 0):
            raise ValueError(
                f"{path} has {model.features or 'no'} random features, not {features}: leave --features out"
            )

        def open_progress(model: Model, examples: ExampleReader, title: str) -> ProgressFile:
            identity = {
                "data": fingerprint(examples),
                "model": before,
                "wave": title,
                "method": model.method,
                "net": model.net,
                "seed": model.seed if seed is None else seed,
                "epochs": epochs,
                "device": device,
                **identify_trunk(model.trunk),
                **({} if model.ready is None else {"weights": model.ready.facts["sha256"]}),
                **({"features": model.features} if model.features else {}),
            }
            return ProgressFile(progress_path(path), identity, observer, pause)

        try:
            report = model.learn(
                data,
                None if name is None else as_text(name),
                label=label,
                seed=seed,
                device=device,
                epochs=epochs,
                observer=observer,
                progress=open_progress,
                again=again,
                keep_sums=keep_sums,
            )
        except RepeatedWaveError:
            remove_progress(path)
            raise
        model.save(path, embed=embed)
        remove_progress(path)
    return report


def identify_trunk(trunk: str | nn.Module | None) -> dict[str, str]:
    """Return what tells a trunk that is given from others; one that the first wave makes is known by its model."""
    if trunk in (None, OWN):
        return {}
    return {"trunk": trunk if isinstance(trunk, str) else hash_content(type(trunk).__name__, trunk.state_dict())}


def learn_wave(model: Model, request: WaveRequest, name: str, new: Sequence[str], began: float) -> Report:
    """Let a model learn a wave, whose ``new`` classes are its last ones; of the model nothing is changed in place."""
    if model.method == "fixed":  # only what is needed is loaded
        from ucb.incremental.frozen import learn_frozen as learn_with
    else:
        from ucb.incremental.bayesian_net import learn_bayesian_net as learn_with
    outcome = learn_with(model, request)
    model.learner = outcome.learner
    new_counts = outcome.counts[len(model.classes) - len(new) :].tolist()
    if missing := ", ".join(repr(each) for each, number in zip(new, new_counts, strict=True) if number == 0):
        raise ValueError(f"no example of the class {missing} can be read: mend or remove it, then learn again")
    asked, right = Counter(outcome.target.tolist()), Counter(outcome.target[outcome.given == outcome.target].tolist())
    examples = {model.classes[number]: int(times) for number, times in enumerate(outcome.counts) if times}
    held_out = {model.classes[number]: (asked[number], right[number]) for number in sorted(asked)}
    largest = max(outcome.effects, key=lambda effect: effect.change, default=None)
    wave = Wave(
        name,
        examples,
        held_out,
        prints={}
        if outcome.prints is None
        else {model.classes[number]: int(outcome.prints[number]) for number in outcome.counts.nonzero().flatten()},
        choices=((0, len(model.classes)),),
        repeated=outcome.repeated,
        date=say_date(),
        largest_effect=None if largest is None else (largest.wave, largest.change),
        statistics=outcome.statistics,
        sums=outcome.sums,
    )
    model.waves = [*model.waves, wave]
    model.calibrate()
    tried = [*outcome.skipped, *request.examples.skipped]
    skipped = list({one.name: one for one in tried}.values())  # some were tried twice
    remarks = [*request.examples.remarks, *_find_remarks(model.classes, request, outcome)]
    warnings = [*warnings_about(request.examples), *find_warnings(model.classes, outcome)]
    return Report(wave, outcome.effects, skipped, remarks, list(new), time.monotonic() - began, warnings)


def hold_out(labels: Sequence[str], seed: int, wave: int) -> Tensor:
    """Return a mask: about 10 % of each class, at least one where it has five, and 1,000 or so of a wave at most.

    With thousands of classes there are more: all classes give one away, so that none is at a disadvantage.
    """
    share = min(HELD_OUT_SHARE, MOST_HELD_OUT / max(1, len(labels)))
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for label, own in rows.items():
        some = max(1, round(share * len(own))) if len(own) >= LEAST_TO_HOLD_OUT else 0
        order = torch.randperm(len(own), generator=generator_for("held out", seed, wave, label))
        mask[torch.tensor(own)[order[:some]]] = True
    return mask


def choose_asked(number: int, seed: int) -> Tensor:
    """Return which held-out examples are asked: all, or 1,000 by chance, since each costs more with more classes."""
    return torch.randperm(number, generator=generator_for("asked", seed))[:MOST_HELD_OUT].sort().values


class Copies:
    """Which examples of a wave are copies of others in it, by their hashes.

    Where most examples are copies of held-out ones, the data are like that, as in a table with few different rows: each
    copy is an example in its own right then, and nothing is made of it.
    """

    def __init__(self, learnt: Tensor, held_out: Tensor) -> None:
        self.every = torch.cat([learnt, held_out])
        _, group = self.every.unique(return_inverse=True)
        among_learnt = torch.bincount(group[: len(learnt)], minlength=len(self.every))
        self.of_held_out = among_learnt[group[len(learnt) :]]
        """How many copies of each held-out example are among the learnt ones."""
        self.different = len(group.unique()) / len(self.every)
        """The share that is left if each stands there once."""
        if 2 * int(among_learnt[group[len(learnt) :].unique()].sum()) > len(learnt):
            self.of_held_out, self.different = torch.zeros_like(self.of_held_out), 1.0


def _find_remarks(classes: Sequence[str], request: WaveRequest, outcome: WaveOutcome) -> list[str]:
    """Say whether the wave was learnt before, and which classes have one example that can be read, of more."""
    found = []
    if outcome.repeats is not None:
        found.append(f"these data were learnt before, as {outcome.repeats!r}: they are no new evidence")
    elif outcome.familiar >= WORTH_SAYING:
        share = f"{100 * outcome.familiar:.0f} %"
        said = f"the model foresees {share} of these examples as if it had learnt them before"
        found.append(f"{said}: they are no new evidence")
    there = Counter(request.examples.labels)
    alone = [classes[number] for number in (outcome.counts == 1).nonzero().flatten().tolist()]
    return found + [f"class {name!r} has only one example that can be read" for name in alone if there[name] > 1]


def find_warnings(classes: Sequence[str], outcome: WaveOutcome) -> list[str]:
    """Return warnings about a wave: answers no better than chance, a single class, effects that cannot be estimated."""
    if len(classes) == 1:
        return [f"the model knows the class {classes[0]!r} alone: until it learns another, that is its answer to all"]
    found = []
    asked, right = len(outcome.target), int((outcome.given == outcome.target).sum())
    if asked and right * len(classes) <= asked:
        what, chance = count_words(asked, "held-out example", "held-out examples"), f"{100 / len(classes):.2g} %"
        said = f"{right} of {what} judged right is no better than chance ({chance})"
        found.append(f"{said}: look at the labels of this wave")
    for number in sorted(set(outcome.target.tolist())):
        given = outcome.given[outcome.target == number]
        if len(given) >= WRONG_TO_NAME and not bool((given == number).any()):
            own, other = classes[number], classes[Counter(given.tolist()).most_common(1)[0][0]]
            said = f"none of {len(given)} held-out examples of {own!r} is judged right"
            found.append(f"{said}: most are called {other!r}")
    if outcome.effects and found:
        found.append("the effects on earlier waves cannot be trusted: these examples contradict what was learnt before")
    elif outcome.effects and outcome.is_overfitted:
        found.append("the effects on earlier waves cannot be trusted: there are too few examples for what was learnt")
    return found
