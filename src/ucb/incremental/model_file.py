"""The model file: one safetensors file that grows with the classes, and by about 2 KB with each wave.

Its JSON has what a model is and the facts of its learner (under the name ``way``); tensors hold the rest. Of the
head's symmetric sums one half is kept. How waves are kept is in :mod:`ucb.incremental.wave_file`.

Whatever a file says is checked before anything is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucb.data.readers import ColumnKind, Shape
from ucb.data.readers.reader import as_text
from ucb.incremental import checked_file
from ucb.incremental.checked_file import FieldError, Fields, check_tensor, check_tensors, check_text, check_whole
from ucb.incremental.frozen import FrozenTrunkModel
from ucb.incremental.model import METHODS, Model
from ucb.incremental.trunks import OWN, Given, Trunk, build_trunk, supports_patches
from ucb.incremental.wave_file import (
    FIGURES,
    STATISTICS,
    SUMS,
    count_retired,
    halve,
    join_sums,
    join_waves,
    split_waves,
)
from ucb.storage import write_atomically

if TYPE_CHECKING:
    from ucb.incremental.bayesian_net import BayesianNetModel

LONGEST_SIDE, FINEST, MOST_FEATURES = 1024, 100, 6000
MOST_CLASSES, MOST_COLUMNS, MOST_UNITS = 100_000, 1_000_000, 100_000
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
    learner = model.learner
    if learner is None:
        raise ValueError("the model has learnt nothing yet, and has no trunk to begin with")
    facts, tensors = _split_frozen(learner) if isinstance(learner, FrozenTrunkModel) else _split_net(learner)
    notes, of_waves = split_waves(model.waves, model.classes, model.earlier and model.earlier[0])
    values = {
        "method": model.method,
        "net": model.net,
        "seed": model.seed,
        "shape": list(model.shape or ()),
        "columns": model.columns,
        **({} if model.kinds is None else {"kinds": model.kinds}),
        "label": model.label,
        "classes": model.classes,
        "waves": notes,
        "way": facts,
    }
    if model.earlier is not None:
        values["earlier"] = model.earlier[1]
    data = checked_file.pack(values, {**tensors, **of_waves})
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
    fields.only("method", "net", "seed", "shape", "columns", "kinds", "label", "classes", "waves", "way", "earlier")
    method = fields.one_of("method", METHODS)
    model = Model(method, net=fields.optional_text("net"), seed=fields.whole("seed"))
    model.shape = _check_shape(fields)
    model.columns = None if fields.get("columns") is None else fields.list("columns", check_text, MOST_COLUMNS)
    if "kinds" in fields.values:  # a model of plain numbers has none
        model.kinds = fields.list("kinds", _check_kind, MOST_COLUMNS)
        if model.columns is None or len(model.columns) != len(model.kinds):
            raise FieldError("columns do not fit their kinds")
    if model.columns is not None:
        numbers = len(model.columns) if model.kinds is None else sum(kind.width for kind in model.kinds)
        if model.shape != (numbers,):
            raise FieldError("columns do not fit the shape")
    model.label = fields.optional_text("label")
    model.classes = fields.list("classes", check_text, MOST_CLASSES)
    if len(set(model.classes)) < len(model.classes):
        raise FieldError("a class stands there twice")
    facts = fields.fields("way")
    of_waves = {name: each for name, each in tensors.items() if name.startswith((FIGURES, STATISTICS, SUMS))}
    own = {name: value for name, value in tensors.items() if name not in of_waves}
    learner: FrozenTrunkModel | BayesianNetModel
    if method == "fixed":
        learner = _join_frozen(model, facts, own, given)
    else:
        learner = _join_net(model, facts, own, len(fields.list("waves", lambda where, value: value)))
    features = learner.trunk.features if isinstance(learner, FrozenTrunkModel) else None
    model.waves, earlier = join_waves(fields, model.classes, of_waves, features)
    if bool(model.waves) != bool(model.classes) or (features is None and not model.waves):
        raise FieldError("there are waves without classes, or classes without waves")
    if earlier is not None:
        model.earlier = earlier, fields.whole("earlier", 1) if "earlier" in fields.values else len(model.classes)
    model.learner = learner
    model.calibrate()
    return model


def _check_shape(fields: Fields) -> Shape:
    shape = tuple(fields.list("shape", lambda where, value: check_whole(where, value, 1, MOST_COLUMNS), 3))
    if len(shape) == 1 or (len(shape) == 3 and shape[0] in (1, 3) and max(shape[1:]) <= LONGEST_SIDE):
        return shape
    raise FieldError(f"shape is {list(shape)}, neither an image's nor a row's")


def _check_kind(where: str, value: Any) -> ColumnKind:
    match value:
        case [str(kind), int(width)] if not isinstance(width, bool) and (found := ColumnKind(kind, width)).is_possible:
            return found
    raise FieldError(f"{where} is no kind of column")


def _split_frozen(learner: FrozenTrunkModel) -> Parts:
    head = learner.head
    tensors = {f"trunk.{name}": value for name, value in learner.trunk.stored().items()}
    if learner.examples:
        tensors |= {"head.gram": halve(head.gram), "head.moments": head.moments, "head.counts": head.counts}
    facts: dict[str, Any] = {"trunk": learner.trunk.facts, "ridge": head.ridge}
    if learner.repeated:
        facts["repeated"] = learner.repeated
    if retired := count_retired(head):
        facts["retired"] = retired
    if learner.grid is not None:
        facts["grid"] = learner.grid
    noted = getattr(learner.trunk, "noted", None)
    if noted is not None and as_text(str(noted)) == str(noted) and len(str(noted)) <= checked_file.LONGEST_NAME:
        facts["weights"] = str(noted)
    return facts, tensors


def _join_frozen(model: Model, facts: Fields, tensors: Mapping[str, Tensor], given: Given) -> FrozenTrunkModel:
    facts.only("trunk", "ridge", "repeated", "retired", "grid", "weights")
    if "weights" in facts.values:  # only of a trunk whose weights are a file of the user's
        given = replace(given, noted=Path(facts.text("weights")))
    trunk = _join_trunk(model, facts.fields("trunk"), tensors, given)
    sums = [name for name in tensors if not name.startswith("trunk.")]
    if len(tensors) > len(trunk.stored()) + (3 if sums else 0):
        raise FieldError("there are unknown tensors")
    grid = facts.whole("grid", -FINEST, FINEST) if "grid" in facts.values else None  # files of before have none
    is_empty = not sums and not model.classes
    held = tensors["head.gram"].numel() if "head.gram" in tensors else 0
    if trunk.features > MOST_FEATURES and 2 * held < trunk.features**2:  # no memory is taken for what is not there
        raise FieldError("the trunk has more features than there are sums for")
    learner = FrozenTrunkModel(trunk, 0, grid=grid)
    if not is_empty:
        counts = check_tensor(tensors, "head.counts", (len(model.classes),), torch.float64)
        if bool((counts < 0).any()):
            raise FieldError("a class has been seen less than 0 times")
        retired = facts.whole("retired", 1) if "retired" in facts.values else 0
        learner.head = join_sums(tensors, "head.", trunk.features, counts, retired)
    learner.head.set_ridge(facts.number("ridge", 1e-9, 1e9))
    if "repeated" in facts.values:  # a model that has learnt nothing twice has no such number
        learner.repeated = facts.number("repeated", 0, learner.examples)
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


def _split_net(learner: BayesianNetModel) -> Parts:
    facts = {"net": learner.net_name, "heads": learner.heads, "size": learner.num_examples, "seed": learner.seed}
    return facts | ({} if learner.doubt is None else {"doubt": list(learner.doubt)}), learner.tensors()


def _join_net(model: Model, facts: Fields, tensors: Mapping[str, Tensor], waves: int) -> BayesianNetModel:
    from ucb.bayes import gaussians
    from ucb.incremental.bayesian_net import NETS, BayesianNetModel, Doubt, build_wave_net, check_net

    facts.only("net", "heads", "size", "seed", "doubt")
    shape, classes = model.shape or (), len(model.classes)
    net = check_net(facts.one_of("net", tuple(NETS)), shape)
    heads = facts.list("heads", lambda where, value: _check_head(where, value, classes))
    if len(heads) > waves or {number for head in heads for number in head} != set(range(classes)):
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
