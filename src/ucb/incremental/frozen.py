"""A trunk that stays, and an exact Bayesian head whose sums are all that is kept of the data.

A wave is learnt by one pass over its examples, which are added to the sums. Features are rounded to multiples of
2^-14 (of 1, or of the power of 2 that fits them). Products of them are multiples of 2^-28, and sums of these below 2^25
are exact in double precision, in whatever order they are added: the sums, and all that follows from them, do not depend
on the order of examples and waves, nor on whether others were learnt and unlearnt meanwhile. Larger sums are rounded as
any are.

The ridge (how strongly the head's weights are drawn to 0) is a function of the sums. It is chosen before the held-out
examples are asked about, so that what is measured is what will answer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ucb.bayes.conjugate import ConjugateHead
from ucb.data.readers import Skipped
from ucb.data.readers.columns import find_marks
from ucb.data.readers.reader import say_first
from ucb.incremental.calibration import RawPrediction, RawPredictionBatches
from ucb.incremental.familiarity import Familiarity
from ucb.incremental.inputs import ROWS, split_portions
from ucb.incremental.learning import MOST_HELD_OUT, Copies, WaveOutcome, WaveRequest, choose_asked
from ucb.incremental.model import Model
from ucb.incremental.ridge import LEAST_NOISE, choose_ridge
from ucb.incremental.trunks import OWN, SAMPLED, RowTrunk, Trunk, build_trunk
from ucb.incremental.waves import Effect, Wave, describe_change, hash_examples, sum_hashes
from ucb.seeds import generator_for

PAIRS = 16
"""Pairs of opposite samples of the head's weights: their mean is the mean."""
FAINTEST = 1e-6
"""The share of the usual |phi|^2 that is nothing at all."""
BLOCKS = 8
"""Pieces in which a triangular matrix is multiplied."""
AT_A_TIME = 32
"""Images that go through the trunk between two signs of progress: a pretrained one takes a second for them."""
FITTED = 0.8
"""A mean leverage above which the head meets each example nearly exactly, and says little about others."""
GRID = 14
"""Features are multiples of 2^-14; with coarser ones, sums of more examples would be exact."""
LEAST_FREE = 1e-6
"""What the leverage of an example leaves of 1 at least: below it there is only rounding."""
ON_SCORES = "how far scores of its classes move on unseen examples like its own, where 1 turns a yes into a no"


class HeadPosterior(NamedTuple):
    """What the sums say, ready for many questions."""

    weights: Tensor
    inverse_factor: Tensor
    noise: Tensor
    usual_variance: float
    """The mean leverage h of what was learnt."""
    unseen_variance: float
    """What phi^T A^-1 phi is expected to be for an example like those, but not among them: h / (1 - h)."""
    usual_energy: float
    """The mean of |phi|^2 over what was learnt."""
    balance: Tensor
    """What each score is multiplied by before classes are compared: see ``_balance``."""
    determined: float
    """How many of the weights of an output the data have determined: the trace of A^-1 sum phi phi^T."""


class FrozenTrunkModel:
    """Trunk and head. Learning adds to the head's sums; ``set_ridge`` ends it."""

    def __init__(self, trunk: Trunk, classes: int, ridge: float = 0.1, grid: int | None = GRID) -> None:
        self.trunk = trunk
        self.grid = grid
        """Features are rounded to multiples of 2^-grid; those of models of before are not."""
        self.head = ConjugateHead(trunk.features, classes, ridge)
        self.repeated = 0.0
        """How many of the examples were learnt before: they count in the sums, and are no new evidence."""
        self._posterior: HeadPosterior | None = None

    def copy(self) -> FrozenTrunkModel:
        """Return a twin that can learn while this one stays as it is; the trunk, which never changes, is shared."""
        twin = copy.copy(self)
        twin.head, twin._posterior = copy.deepcopy(self.head), None
        return twin

    def to(self, device: torch.device) -> None:
        """Go to a device."""
        if device != self.device:
            self.trunk = copy.deepcopy(self.trunk)
        self.trunk.to(device)
        self.head.to(device)
        self._posterior = None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.head.gram.device

    @property
    def values_per_row(self) -> int:
        """About how many numbers are at work to predict from one example's features."""
        return self.trunk.features + 2 * PAIRS * len(self.head.counts)

    @property
    def examples(self) -> float:
        """How many examples were learnt, those of classes that are no longer an answer among them."""
        return float(self.head.gram[-1, -1])

    def add(self, features: Tensor, classes: Tensor, times: float = 1) -> None:
        """Learn from examples' features; each counts so many times, and -1 takes it out again."""
        self.head.add(features, classes, times)
        self._posterior = None

    def without(self, features: Tensor, classes: Tensor, times: Tensor) -> FrozenTrunkModel:
        """Return the model as it would be if it had learnt each of these examples so many times less."""
        if not int(times.sum()):
            return self
        twin, times = self.copy(), times.to(self.device)
        twin.head.add(features.repeat_interleave(times, 0), classes.repeat_interleave(times), -1)
        return twin

    def features(self, x: Tensor) -> Tensor:
        """Return what the trunk shows of examples, rounded."""
        found: Tensor = self.trunk(x.to(self.device))
        return found if self.grid is None else (found * 2.0**self.grid).round() * 2.0**-self.grid

    @property
    def worth(self) -> float:
        """How many examples the learnt ones are worth."""
        return max(self.examples - self.repeated, 1.0)

    def set_ridge(self, ridge: float | None = None) -> None:
        """Set the ridge, or choose it by the evidence of all that was learnt."""
        if ridge is None:
            ridge = choose_ridge(self.head, self.worth, self.trunk.usual_ridge, is_validated=not self.trunk.is_made)
        self.head.set_ridge(ridge)
        self._posterior = None

    @property
    def posterior(self) -> HeadPosterior:
        """The posterior; it is worked out once after each change."""
        if self._posterior is None:
            head = self.head
            size = len(head.gram)
            eye = torch.eye(size, dtype=head.gram.dtype, device=self.device)
            factor, failed = torch.linalg.cholesky_ex(head.gram + head.ridge * eye)
            if int(failed):
                raise RuntimeError("the model is damaged: its sums are not those of any data")
            inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
            determined = size - head.ridge * float(inverse.square().sum())
            usual = max(determined, 1e-9) / self.worth
            examples = max(self.examples, 1.0)
            inverse *= (examples / self.worth) ** 0.5
            weights = torch.cholesky_solve(head.moments, factor)
            unexplained = head.counts - (head.moments * weights).sum(0)
            noise = (unexplained / examples).clamp_min(LEAST_NOISE).float()
            energy = max(float(head.gram.diagonal()[:-1].sum() / examples), 1e-30)
            balance = _balance(head.counts)
            inverse = inverse.to(self.trunk.precision)
            # What earlier versions kept of held-out examples compares them with the learnt ones themselves.
            unseen = usual if self.grid is None else usual / max(1 - usual, LEAST_FREE)
            self._posterior = HeadPosterior(weights, inverse, noise, usual, unseen, energy, balance, determined)
        return self._posterior

    def predict_raw(self, x: Tensor) -> RawPrediction:
        """Return logits under samples of the head, and how unlike what was learnt examples are."""
        return self.predict_features(self.features(x))

    @torch.no_grad()
    def predict_features(self, features: Tensor) -> RawPrediction:
        """Return the raw prediction of features."""
        posterior = self.posterior
        mean, variance = self._scores(features)
        spread = (variance[:, None] * posterior.noise).sqrt()
        logits = (mean + spread * draw_head_noise(mean.shape[1]).to(mean)) * posterior.balance.to(mean)
        energy = features.double().square().sum(1) / posterior.usual_energy
        strength = (energy + FAINTEST).log().float() / 2
        return RawPrediction(logits, (variance / posterior.unseen_variance).clamp_min(1e-12).log(), strength)

    @torch.no_grad()
    def surprise(self, features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return of each example phi^T A^-1 phi, and the mean square that is left of its targets in units of the noise.

        An example of a class that is not known yet was never learnt: its square is what is expected of a new one.
        """
        mean, variance = self._scores(features)
        target = classes[:, None] == torch.arange(mean.shape[1], device=mean.device)
        left = ((target.float() - mean).square() / self.posterior.noise).mean(1)
        return variance, torch.where(classes < mean.shape[1], left, 1 + variance)

    def _scores(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return each score and phi^T A^-1 phi, summed up in the trunk's precision."""
        triangle = self.posterior.inverse_factor
        phi = torch.cat([features, features.new_ones(len(features), 1)], 1).to(triangle.dtype)
        # |A^-1/2 phi|^2 in blocks: what is above the triangle's diagonal is 0 and left out
        variance = phi.new_zeros(len(phi))
        for first, last in split_rows(len(triangle)):
            variance += (phi[:, :last] @ triangle[first:last, :last].T).square_().sum(1)
        return (phi.double() @ self.posterior.weights).float(), variance.float()

    def certainty(self) -> dict[str, Any]:
        """Say how sure each layer is, as sigma now over sigma before anything was learnt, and what room is left."""
        left = (len(self.head.gram) - self.posterior.determined) / len(self.head.gram)
        sigma, note = max(0.0, left) ** 0.5, f"ridge {self.head.ridge:g}"
        layers = [
            {"layer": "trunk", "weights": self.trunk.size, "sigma": None, "note": self.trunk.about},
            {"layer": "head", "weights": self.head.moments.numel(), "sigma": sigma, "note": note},
        ]
        return {"layers": layers, "capacity_left": min(1.0, max(0.0, left))}

    @torch.no_grad()
    def effects_of(self, after: FrozenTrunkModel, classes: Sequence[str], waves: Sequence[Wave]) -> list[Effect]:
        """Return how far the scores of each earlier wave's classes are expected to move on unseen examples.

        ``after`` is this model with a new wave. Unseen means: like those learnt before, but not among them. The scores
        of the learnt ones themselves hardly move where there are few of them: the weights fit each of them. So each is
        left out in turn, by a closed form. Without an example whose leverage phi^T A^-1 phi is h, what its targets are
        above its scores, y - w^T phi, becomes 1 / (1 - h) times as large; the change of that, in root mean square, is
        the change of a score. With the mean leverage of all examples in place of each one's own the sums that the head
        keeps suffice. A score of 1 means yes, 0 no.

        It is an estimate, and rather low, since leverages differ: of digits, 5 to 500 a class, unseen ones moved by 0.7
        to 4 times as much, mostly 1.5.
        """
        head, known = self.head, self.head.moments.shape[1]
        then, now = (1 / max(1 - each.posterior.usual_variance, LEAST_FREE) for each in (self, after))
        weights = now * after.posterior.weights[:, :known].to(self.device) - then * self.posterior.weights
        of_targets = now - then
        square = (weights * (head.gram @ weights)).sum(0) - 2 * of_targets * (weights * head.moments).sum(0)
        square = (square + of_targets**2 * head.counts) / max(self.examples, 1.0)
        numbers = {name: number for number, name in enumerate(classes)}
        effects = []
        for wave in waves:
            own = [numbers[name] for name in wave.examples]
            change = float(square[own].clamp_min(0).mean().sqrt())
            effects.append(Effect(wave.name, change, ON_SCORES, describe_change(change)))
        return effects


def _balance(counts: Tensor) -> Tensor:
    """Return sqrt(mean count / count) of each class: 1 where all have equally many examples.

    What a score of 1 or 0 is regressed on includes how frequent the class is, so that a rare one would never be the
    answer. The noise of a score grows with the root of its class's count: divided by it, all have the same. Of the
    powers of the count that benchmarks/rare_classes.py tries on held-out images, 0.5 and 0.6 are best.
    """
    known = counts[counts > 0]
    return torch.where(counts > 0, (known.mean() / counts.clamp_min(1)).sqrt(), 1.0)


def draw_head_noise(classes: int) -> Tensor:
    """Return the noise [samples, 1, classes] of the samples in a prediction, the same in every one."""
    noise = torch.randn(PAIRS, 1, classes, generator=generator_for("opinion"))
    return torch.cat([noise, -noise])


def split_rows(size: int) -> list[tuple[int, int]]:
    """Return where the blocks of rows of a triangular matrix begin and end."""
    rows = -(-size // BLOCKS)
    return [(first, min(first + rows, size)) for first in range(0, size, rows)]


@dataclass
class PassPosition:
    """Where the pass over the examples that are not held out stands; its names are those in the progress file."""

    counts: Tensor
    """Examples of each class that were learnt."""
    contents: Tensor | None
    """The sum of the hashes of each class's examples; None if the pass was begun before there were such sums."""
    done: int = 0
    prints: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """The hashes of the examples and their classes."""
    familiar: Tensor = field(default_factory=lambda: torch.zeros(2, 0, dtype=torch.float64))
    """What tells whether the wave was learnt before."""
    skipped: list[list[str]] = field(default_factory=list)


def learn_frozen(model: Model, request: WaveRequest) -> WaveOutcome:
    """Learn a wave; the model's own learner is left as it is."""
    train = torch.nonzero(~request.held_out).squeeze(1)
    found = None if request.progress is None else request.progress.load()
    before = model.learner
    assert before is None or isinstance(before, FrozenTrunkModel)
    request.pace.work += min(len(request.classes) - len(train), MOST_HELD_OUT)  # calibration asks about these
    learner = _begin(model, request, before, train, found)
    nothing = PassPosition(*torch.zeros(2, len(model.classes), dtype=torch.int64))
    at = nothing if found is None else PassPosition(**{"contents": None, **found["pass"]})
    skipped = [Skipped(*each) for each in at.skipped]
    if before is not None and not before.examples:
        before = None  # all that is kept of it is the trunk
    familiarity = Familiarity(before, request, at.familiar)
    _learn(learner, request, train, at, familiarity)
    if not int(at.counts.sum()):
        raise ValueError(f"none of the {len(train)} examples can be read{say_first(': ', request.examples.skipped)}")
    none = torch.zeros(0, dtype=torch.int64)
    held_out = request.examples.batches(torch.nonzero(request.held_out).squeeze(1), ROWS)
    seen = [(torch.zeros(0, learner.trunk.features, device=learner.device), none, none, none)]
    seen += _extract_features(learner, request, held_out, familiarity)
    features, classes, hashes, contents = (torch.cat(parts) for parts in zip(*seen, strict=True))
    target = classes.to(learner.device)
    copies = Copies(at.prints, hashes)
    counts = at.counts + torch.bincount(classes, minlength=len(model.classes))
    prints = None if at.contents is None else at.contents + sum_hashes(contents, classes, len(model.classes))
    repeats = request.refuse_repeated(model.classes, counts, prints, copies.every)
    familiar = familiarity.share if repeats is None else 1.0
    new = (1 - familiar) * copies.different
    learner.repeated += (1 - new) * len(at.prints)
    whole = learner.copy()
    whole.add(features, target)
    whole.repeated = min(whole.repeated + (1 - new) * len(hashes), whole.examples)
    whole.set_ridge()
    learner.set_ridge(whole.head.ridge)
    some = choose_asked(len(target), request.seed).to(learner.device)
    asked = learner.without(features, target, copies.of_held_out)

    def ask(features: Tensor) -> RawPrediction:
        request.pace.went_through(len(features) / 2)  # it asks twice
        return asked.predict_features(features)

    batches = RawPredictionBatches(ask, features[some], target[some], learner.values_per_row)
    given, statistics = request.calibration.update(batches, 1 - familiar)
    effects = before.effects_of(whole, model.classes, model.waves) if before else []
    request.pace.finish()
    return WaveOutcome(
        learner=whole,
        given=given,
        target=target[some].cpu(),
        counts=counts,
        prints=prints,
        effects=effects,
        statistics=statistics,
        skipped=skipped,
        repeats=repeats,
        familiar=familiar,
        repeated=min(max(0.0, whole.repeated - (before.repeated if before else 0.0)), float(counts.sum())),
        is_overfitted=before is not None and before.posterior.usual_variance > FITTED,
        sums=subtract_heads(whole.head, before.head if before else None, counts) if request.keep_sums else None,
    )


def subtract_heads(head: ConjugateHead, before: ConjugateHead | None, counts: Tensor) -> ConjugateHead:
    """Return what a wave added to a head's sums, with an output for each class of which there were any ``counts``."""
    own = torch.nonzero(counts).squeeze(1).to(head.gram.device)
    found = ConjugateHead(len(head.gram) - 1, len(own)).to(head.gram.device)
    found.gram.copy_(head.gram)
    found.moments.copy_(head.moments[:, own])
    found.counts.copy_(head.counts[own])
    if before is not None:
        found.gram -= before.gram
        old = own[own < len(before.counts)]
        found.moments[:, : len(old)] -= before.moments[:, old]
        found.counts[: len(old)] -= before.counts[old]
    return found.cpu()


def _begin(
    model: Model, request: WaveRequest, before: FrozenTrunkModel | None, train: Tensor, found: dict[str, Any] | None
) -> FrozenTrunkModel:
    """Return the learner to go on with: of earlier waves, of an interrupted pass, or new."""
    assert model.shape is not None
    if before is not None:
        learner = before.copy()
        learner.head.grow(len(model.classes))
    else:
        trunk = _make_trunk(model, request, train if found is None else train[:0])
        learner = FrozenTrunkModel(trunk, len(model.classes), grid=choose_grid(trunk))
    if found is not None:
        if learner.trunk.is_made:
            learner.trunk.load_state_dict(found["trunk"])
        learner.head.load_state_dict(found["head"])
    learner.to(request.device)
    return learner


def choose_grid(trunk: Trunk) -> int:
    """Return the grid for a trunk's features; a module's may have any scale, which one input shows."""
    probe = getattr(trunk, "probe", None)
    return trunk.finest if probe is None else GRID - math.ceil(math.log2(max(float(probe.abs().max()), 2.0**-60)))


def _make_trunk(model: Model, request: WaveRequest, train: Tensor) -> Trunk:
    """Return the trunk that a model begins with; one of its own is made from some of the examples ``train``, if any."""
    assert model.shape is not None
    if model.trunk not in (None, OWN):
        from ucb.incremental.pretrained import give_trunk

        trunk, examples = model.ready or model.trunk, len(request.classes)
        assert trunk is not None
        given = give_trunk(trunk, model.shape, model.features, model.seed, examples)
        model.features = getattr(given, "number", None)
        return given
    trunk = build_trunk(model.shape, seed=request.seed)
    if len(train):
        chosen = train[torch.randperm(len(train), generator=generator_for("looked at", request.seed))[:SAMPLED]]
        request.pace.work += len(chosen)
        request.pace.went_through(0)
        parts = []
        for _, x in request.examples.batches(chosen.sort().values, AT_A_TIME):
            parts.append(x)
            request.pace.went_through(len(x))
        if not parts:
            why = say_first(": ", request.examples.skipped)
            raise ValueError(f"none of {len(chosen)} examples can be read{why}")
        sample = torch.cat(parts)
        trunk.fit(sample, request.seed)
        if model.kinds is not None and isinstance(trunk, RowTrunk):
            trunk.fit_marks(sample, torch.tensor(find_marks(model.kinds)))
    return trunk


def _learn(
    learner: FrozenTrunkModel, request: WaveRequest, train: Tensor, at: PassPosition, familiarity: Familiarity
) -> None:
    """Go through the examples that are not held out, from where the pass stands."""
    skipped, hashes, progress = list(at.skipped), [at.prints], request.progress
    request.pace.went_through(at.done)
    for reached, batches in split_portions(request.examples, train, at.done):
        for features, classes, own_hashes, contents in _extract_features(learner, request, batches, familiarity):
            learner.add(features, classes.to(learner.device))
            at.counts += torch.bincount(classes, minlength=len(at.counts))
            if at.contents is not None:
                at.contents += sum_hashes(contents, classes, len(at.counts))
            hashes.append(own_hashes)
        at.done = reached
        if progress is not None and progress.is_due and reached < len(train):
            at.prints, at.familiar = torch.cat(hashes), familiarity.found
            at.skipped = [*skipped, *([one.name, one.why] for one in request.examples.skipped)]
            trunk = dict(learner.trunk.state_dict()) if learner.trunk.is_made else {}
            head = dict(learner.head.state_dict())
            progress.save({"trunk": trunk, "head": head, "pass": vars(at).copy()})
    at.prints = torch.cat(hashes)


def _extract_features(
    learner: FrozenTrunkModel, request: WaveRequest, batches: Iterable[tuple[Tensor, Tensor]], familiarity: Familiarity
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield features, classes, and hashes with and without these; each batch tells how familiar the wave is."""
    for positions, x in batches:
        classes, parts = request.classes[positions], []
        for some in x.split(AT_A_TIME if x.dim() == 4 and learner.device.type == "cpu" else ROWS):
            parts.append(learner.features(some))
            request.pace.went_through(len(some))
        features = torch.cat(parts)
        familiarity.ask(features, classes, positions)
        yield features, classes, hash_examples(x, request.labels_of(positions)), hash_examples(x)
