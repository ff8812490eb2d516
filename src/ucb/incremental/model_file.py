"""The model file: one safetensors file, the same size however many waves it has learnt, but for new classes.

Its JSON has what a model is and the facts of its learner (under the name ``way``); tensors hold the rest. Of the
head's symmetric sums one half is kept. The figures of a wave are rows of one tensor: a class's number, how many
examples it had, how many were held out, and how many of these were judged right. So the header of the file, which may
not be longer than its reader allows, grows by a wave's name and fingerprint, however many classes the wave has. Files
of version 1 have the figures in the header, by the names of the classes.

Whatever a file says is checked before anything is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.data.readers import Shape
from ucb.data.readers.reader import as_text
from ucb.incremental import checked_file
from ucb.incremental.calibration import ScoreCalibration
from ucb.incremental.checked_file import FieldError, Fields, check_tensor, check_tensors, check_text, check_whole
from ucb.incremental.frozen import FrozenTrunkModel
from ucb.incremental.model import METHODS, Model, Wave
from ucb.incremental.trunks import OWN, Given, Trunk, build_trunk, supports_patches
from ucb.storage import write_atomically

if TYPE_CHECKING:
    from ucb.incremental.bayesian_net import BayesianNetModel

FIGURES = "waves.figures"
LONGEST_SIDE = 1024
LONGEST_FINGERPRINT = 64
MOST_CLASSES, MOST_COLUMNS, MOST_UNITS = 100_000, 1_000_000, 100_000
LARGEST_STATISTIC = 1e18
"""Of the calibration: far more than held-out examples can add up to."""
ROUNDING = 1e-6
"""What sums may be off, as a share of the largest that they can be."""
FALSE = (ValueError, TypeError, KeyError, IndexError, RuntimeError, OverflowError, AttributeError)
"""What PyTorch and Python may raise for values that were not checked."""

Parts = tuple[dict[str, Any], dict[str, Tensor]]
"""What JSON holds, and the tensors."""


def write_model(path: Path, model: Model) -> None:
    """Put a model at ``path`` whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_bytes(model))


def to_bytes(model: Model) -> bytes:
    """Return a model as the bytes of its file, if they can be read again: the data are about to be deleted."""
    learner = model.known
    facts, tensors = _split_frozen(learner) if isinstance(learner, FrozenTrunkModel) else _split_net(learner)
    notes, figures = _split_waves(model.waves, model.classes)
    values = {
        "method": model.method,
        "net": model.net,
        "seed": model.seed,
        "shape": list(model.shape or ()),
        "columns": model.columns,
        "label": model.label,
        "classes": model.classes,
        "waves": notes,
        "way": facts,
    }
    own = {f"calibration.{name}": value for name, value in model.calibration.state_dict().items()}
    data = checked_file.pack(values, {**tensors, FIGURES: figures, **own})
    try:
        _understand(checked_file.unpack(data), "it", Given(trunk=getattr(learner, "trunk", None)))
    except checked_file.DamagedModelError as error:
        raise ValueError(f"the model is not written, since its file could not be read again: {error}") from None
    return data


def read_model(path: Path, given: Given) -> Model:
    """Return the model in a file, with what it does not hold of its trunk; what is wrong is said in one sentence."""
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}: `ucb learn {path} DATA` makes one")
    return _understand(checked_file.read_content(path), str(path), given)


def _understand(content: checked_file.Content, path: str, given: Given) -> Model:
    """Return the model that a file describes."""
    try:
        return _join_model(Fields(content[0]), content[1], given)
    except FALSE as error:
        raise checked_file.DamagedModelError(f"{path} is damaged: {str(error)[:200]}") from None


def _join_model(fields: Fields, tensors: Mapping[str, Tensor], given: Given) -> Model:
    fields.only("method", "net", "seed", "shape", "columns", "label", "classes", "waves", "way")
    method = fields.one_of("method", METHODS)
    model = Model(method, net=fields.optional_text("net"), seed=fields.whole("seed"))
    model.shape = _check_shape(fields)
    model.columns = None if fields.get("columns") is None else fields.list("columns", check_text, MOST_COLUMNS)
    if model.columns is not None and (len(model.shape) != 1 or len(model.columns) != model.shape[0]):
        raise FieldError("columns do not fit the shape")
    model.label = fields.optional_text("label")
    model.classes = fields.list("classes", check_text, MOST_CLASSES)
    if not model.classes or len(set(model.classes)) < len(model.classes):
        raise FieldError("classes are none, or one stands there twice")
    model.waves = _join_waves(fields, model.classes, tensors)
    if not model.waves:
        raise FieldError("waves are none")
    calibration = {name: value for name, value in tensors.items() if name.startswith("calibration.")}
    own = {name: value for name, value in tensors.items() if name not in calibration and name != FIGURES}
    facts = fields.fields("way")
    model.calibration = _join_calibration(calibration)
    if method == "fixed":
        model.learner = _join_frozen(model, facts, own, given)
    else:
        model.learner = _join_net(model, facts, own)
    return model


def _check_shape(fields: Fields) -> Shape:
    shape = tuple(fields.list("shape", lambda where, value: check_whole(where, value, 1, MOST_COLUMNS), 3))
    if len(shape) == 1 or (len(shape) == 3 and shape[0] in (1, 3) and max(shape[1:]) <= LONGEST_SIDE):
        return shape
    raise FieldError(f"shape is {list(shape)}, neither an image's nor a row's")


def _join_calibration(tensors: Mapping[str, Tensor]) -> ScoreCalibration:
    calibration = ScoreCalibration()
    found = check_tensors(tensors, "calibration.", calibration.state_dict(), torch.float64)
    if len(tensors) > len(found):
        raise FieldError("there are unknown tensors of the calibration")
    if bool((found["histogram"] < 0).any() | (found["moments"][:, 0] < 0).any() | (found["nll"] < 0).any()):
        raise FieldError("a count of the calibration is below 0")
    count, total, squares = found["moments"].unbind(1)
    largest = max(float(statistic.abs().max()) for statistic in found.values())
    if largest > LARGEST_STATISTIC or bool((total.square() > (1 + 1e-6) * count * squares).any()):
        raise FieldError("the statistics of the calibration are not those of any data")
    calibration.load_state_dict(found)
    return calibration


def _split_waves(waves: Sequence[Wave], classes: Sequence[str]) -> tuple[list[dict[str, Any]], Tensor]:
    """Return what JSON holds of waves, and their figures."""
    numbers = {name: number for number, name in enumerate(classes)}
    notes: list[dict[str, Any]] = []
    figures: list[int] = []
    for wave in waves:
        own = sorted({*wave.examples, *wave.held_out}, key=numbers.__getitem__)
        for name in own:
            figures += (numbers[name], wave.examples.get(name, 0), *wave.held_out.get(name, (0, 0)))
        notes.append({"name": wave.name, "classes": len(own), "fingerprint": wave.fingerprint})
    return notes, torch.tensor(figures, dtype=torch.int64).view(-1, 4)


def _join_waves(fields: Fields, classes: Sequence[str], tensors: Mapping[str, Tensor]) -> list[Wave]:
    if FIGURES not in tensors:
        known = set(classes)
        return fields.list("waves", lambda where, value: _join_wave_of_version_1(Fields(value, where), known))
    notes = fields.list("waves", lambda where, value: Fields(value, where))
    for note in notes:
        note.only("name", "classes", "fingerprint")
    lengths = [note.whole("classes", 1, len(classes)) for note in notes]
    figures = check_tensor(tensors, FIGURES, (sum(lengths), 4), torch.int64)
    number, _, asked, right = figures.unbind(1)
    wrong = (figures < 0).any(1) | (figures > checked_file.LARGEST).any(1) | (number >= len(classes)) | (right > asked)
    if bool(wrong.any()):
        raise FieldError(f"the tensor {FIGURES} holds figures that no waves have")
    return [_join_wave(note, rows.tolist(), classes) for note, rows in zip(notes, figures.split(lengths), strict=True)]


def _join_wave(note: Fields, rows: list[list[int]], classes: Sequence[str]) -> Wave:
    name = note.text("name")
    examples = {classes[number]: learnt for number, learnt, _, _ in rows if learnt}
    held_out = {classes[number]: (asked, right) for number, _, asked, right in rows if asked}
    if not examples or len({row[0] for row in rows}) < len(rows):
        raise FieldError(f"the wave {name[:40]!r} has no examples, or a class twice")
    return Wave(name, examples, held_out, _check_fingerprint(note))


def _join_wave_of_version_1(fields: Fields, classes: set[str]) -> Wave:
    fields.only("name", "examples", "held_out", "fingerprint")
    examples, held_out = fields.table("examples", check_whole), fields.table("held_out", _check_pair)
    if not examples or not {*examples, *held_out} <= classes:
        raise FieldError(f"{fields.where} names no classes, or unknown ones")
    return Wave(fields.text("name"), examples, held_out, _check_fingerprint(fields))


def _check_pair(where: str, value: Any) -> tuple[int, int]:
    match value:
        case [asked, right]:
            return check_whole(where, asked), check_whole(where, right, most=asked)
    raise FieldError(f"{where} is no pair")


def _check_fingerprint(fields: Fields) -> str:
    found = fields.get("fingerprint")
    if not isinstance(found, str) or len(found) > LONGEST_FINGERPRINT:
        raise FieldError(f"{fields.where}.fingerprint is no short text")
    return found


def _split_frozen(learner: FrozenTrunkModel) -> Parts:
    head = learner.head
    half = torch.cat([row[: place + 1] for place, row in enumerate(head.gram)])
    tensors = {f"trunk.{name}": value for name, value in learner.trunk.stored().items()}
    tensors |= {"head.gram": half, "head.moments": head.moments, "head.counts": head.counts}
    notes: dict[str, Any] = {"repeated": learner.repeated} if learner.repeated else {}
    noted = getattr(learner.trunk, "noted", None)
    if noted is not None and as_text(str(noted)) == str(noted) and len(str(noted)) <= checked_file.LONGEST_NAME:
        notes["weights"] = str(noted)
    return {"trunk": learner.trunk.facts, "ridge": head.ridge, **notes}, tensors


def _join_frozen(model: Model, facts: Fields, tensors: Mapping[str, Tensor], given: Given) -> FrozenTrunkModel:
    facts.only("trunk", "ridge", "repeated", "weights")
    if "weights" in facts.values:  # only of a trunk whose weights are a file of the user's
        given = replace(given, noted=Path(facts.text("weights")))
    trunk = _join_trunk(model, facts.fields("trunk"), tensors, given)
    size, classes = trunk.features + 1, len(model.classes)
    half = check_tensor(tensors, "head.gram", (size * (size + 1) // 2,), torch.float64)
    moments = check_tensor(tensors, "head.moments", (size, classes), torch.float64)
    counts = check_tensor(tensors, "head.counts", (classes,), torch.float64)
    if len(tensors) > len(trunk.stored()) + 3:
        raise FieldError("there are unknown tensors")
    if bool((counts < 0).any()):
        raise FieldError("a class has been seen less than 0 times")
    learner = FrozenTrunkModel(trunk, classes, facts.number("ridge", 1e-9, 1e9))
    whole = learner.head.gram
    for row, some in enumerate(half.split(list(range(1, size + 1)))):
        whole[row, : row + 1] = some
    whole += whole.tril(-1).T
    learner.head.moments.copy_(moments)
    learner.head.counts.copy_(counts)
    _refuse_impossible(whole, moments, counts)
    if "repeated" in facts.values:  # a model that has learnt nothing twice has no such number
        learner.repeated = facts.number("repeated", 0, float(counts.sum()))
    return learner


def _join_trunk(model: Model, facts: Fields, tensors: Mapping[str, Tensor], given: Given) -> Trunk:
    """Return the trunk, and note in the model which one it is."""
    shape, kind = model.shape or (), facts.get("kind")
    if kind == "random":
        from ucb.incremental.random_features import join_random

        random = join_random(facts, tensors, shape, given)
        model.trunk, model.features = random.origin, random.number
        return random
    if kind not in ("patches", "rows"):  # made by the first wave
        from ucb.incremental.pretrained import join_trunk

        trunk = join_trunk(facts, tensors, shape, given)
        model.trunk = trunk.origin
        return trunk
    model.trunk = OWN
    if kind == "patches" and not supports_patches(shape):
        raise FieldError("examples of this shape have no patches")
    count = "filters" if kind == "patches" else "units"
    facts.only("kind", count)
    known = {"kind": kind, count: facts.whole(count, 1, MOST_UNITS)}
    with torch.device("meta"):  # tells sizes, and takes no memory: the tensors may be smaller
        like = build_trunk(shape, known)
    own = check_tensors(tensors, "trunk.", like.state_dict(), torch.float32)
    if "spread" in own and bool((own["spread"] <= 0).any()):
        raise FieldError("the tensor trunk.spread must be above 0")
    made = build_trunk(shape, known)
    made.load_state_dict(own)
    return made


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
    possible &= _is_within(moments, lengths, counts.sqrt()) and _is_within(gram, lengths, lengths)
    if not possible:
        raise FieldError("the sums of its head are not those of any data")


def _is_within(products: Tensor, rows: Tensor, columns: Tensor) -> bool:
    """Whether sums of products are no larger than Cauchy and Schwarz allow; a few rows at a time."""
    return all(
        bool((some.abs() <= (1 + ROUNDING) * length[:, None] * columns).all())
        for some, length in zip(products.split(256), rows.split(256), strict=True)
    )


def _split_net(learner: BayesianNetModel) -> Parts:
    facts = {"net": learner.net_name, "heads": learner.heads, "size": learner.num_examples, "seed": learner.seed}
    return facts | ({} if learner.doubt is None else {"doubt": list(learner.doubt)}), learner.tensors()


def _join_net(model: Model, facts: Fields, tensors: Mapping[str, Tensor]) -> BayesianNetModel:
    from ucb.bayes import gaussians
    from ucb.incremental.bayesian_net import NETS, BayesianNetModel, Doubt, build_wave_net, check_net

    facts.only("net", "heads", "size", "seed", "doubt")
    shape, classes = model.shape or (), len(model.classes)
    net = check_net(facts.one_of("net", tuple(NETS)), shape)
    heads = facts.list("heads", lambda where, value: _check_head(where, value, classes))
    if len(heads) > len(model.waves) or {number for head in heads for number in head} != set(range(classes)):
        raise FieldError("way.heads do not fit waves and classes")
    with torch.device("meta"):  # tells sizes, and takes no memory: the tensors may be smaller
        like = build_wave_net(net, shape, [sum(map(len, heads))], 0)
    if sum(each.numel() for each in like.parameters()) > sum(value.numel() for value in tensors.values()):
        raise FieldError("shape or heads are too large for the weights")
    learner = BayesianNetModel(shape, net, heads, facts.whole("seed"))
    learner.restore_optimizer(len(heads), facts.whole("size", 1))
    if "doubt" in facts.values:  # earlier versions did not know it
        match facts.get("doubt"):
            case [float(learnt), float(held), float(error)] if error >= 0 and math.isfinite(learnt + held + error):
                learner.doubt = Doubt(learnt, held, error)
            case _:
                raise FieldError("way.doubt is not three numbers, of which the last is an error")
    wanted = learner.tensors()
    for group in learner.optimizer.gaussian_groups():
        wanted[f"scale.{group['name']}"] = wanted[f"precision.{group['name']}"]
    if set(wanted) != set(tensors):
        odd = sorted(set(wanted) ^ set(tensors))[0]
        raise FieldError(f"the tensor {odd[:80]!r} is missing or unknown")
    found = {name: check_tensor(tensors, name, tuple(like.shape), like.dtype) for name, like in wanted.items()}
    for name, value in found.items():
        if name.startswith(("precision.", "scale.", "spread")) and bool((value <= 0).any()):
            raise FieldError(f"the tensor {name} must be above 0")
    learner.load(found)
    for name, gaussian in gaussians(learner.method.net):
        if not bool(((gaussian.sigma > 0) & gaussian.sigma.isfinite()).all()):
            raise FieldError(f"the sigma of {name} is 0 or too large")
    return learner


def _check_head(where: str, value: Any, classes: int) -> list[int]:
    if not isinstance(value, list) or not 2 <= len(value) <= classes:
        raise FieldError(f"{where} is no list of classes")
    numbers = [check_whole(where, number, most=classes - 1) for number in value]
    if len(set(numbers)) < len(numbers):
        raise FieldError(f"{where} names a class twice")
    return numbers
