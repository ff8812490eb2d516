"""Finding out how several weight samples may travel through a net whose forward nobody has read."""

from __future__ import annotations

from typing import Literal
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from ucb.bayes.passes import Pass
from ucb.bayes.trial import FarApart, Trial, agree, rounding, untouched

Way = Literal["shared", "expanded", "alone"]
"""How samples travel.

``shared``: the input stays B rows until the first Bayesian layer multiplies them, which saves most of its work.
``expanded``: B*S rows from the start, for a net that adds its input to a later layer's output.
``alone``: one by one, for a net that looks across rows, reads weights directly or folds another axis into the batch.
"""

WAYS: tuple[Way, ...] = ("shared", "expanded", "alone")
MOST_ALONE = 8
"""How many samples are compared with themselves alone."""

Kind = tuple[str, int, torch.dtype, tuple[bool, ...]]
"""An estimator, a number of samples, and a kind of input: its type, and which of its axes are longer than 1."""


class _Known:
    """What is known of a net: the modules that it calls, and how samples may travel, for these modules' modes."""

    def __init__(self, net: nn.Module, names: set[str], ways: dict[tuple[Kind, tuple[bool, ...]], Way]) -> None:
        self.names, self.ways = names, ways
        self._modules: list[ReferenceType[nn.Module]] = [ref(m) for n, m in net.named_modules() if n in names]

    def modes(self) -> tuple[bool, ...]:
        """Return which of the modules are in training mode."""
        return tuple((module := weak()) is not None and module.training for weak in self._modules)


_known: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


def way_to_travel(net: nn.Module, x: Tensor, p: Pass) -> Way:
    """Say how the samples of a pass like ``p`` may travel through ``net``.

    No rule tells the ways apart, so they are tried, once for each net, its mode, the number of samples and the kind of
    input. An estimator that puts noise on activations is tried too: it refuses a net whose rows are not its examples,
    or that looks across them.
    """
    if len(x) == 0 or (p.estimator == "weights" and p.samples == 1):
        return "shared"
    known, kind = _known.get(net), _kind(x, p)
    way = None if known is None else known.ways.get((kind, known.modes()))
    if way is None:
        with untouched(net) as trial:
            way = _try_ways(trial, x, p)
        remember(net, x, p, way, trial.called)
    return way


def remember(net: nn.Module, x: Tensor, p: Pass, way: Way, called: set[nn.Module] | None = None) -> None:
    """Let samples travel in this way from now on; ``called`` are the modules that were used."""
    known = _known.get(net) or _Known(net, set(), {})
    names = {name for name, module in net.named_modules() if called is not None and module in called}
    if not names <= known.names:  # what was known of fewer modules may not hold in each of these modules' modes
        known = _Known(net, names | known.names, {})
    known.ways[_kind(x, p), known.modes()] = way
    _known[net] = known


def forget(net: nn.Module) -> bool:
    """Forget what is known of a net, which may have changed; say whether anything was."""
    return bool(_known.pop(net, None))


def _kind(x: Tensor, p: Pass) -> Kind:
    return p.estimator, p.samples, x.dtype, tuple(size > 1 for size in x.shape[1:])


def _try_ways(trial: Trial, x: Tensor, like: Pass) -> Way:
    generator = torch.Generator(x.device).manual_seed(0)
    _try_one(trial, x, like, generator)  # if this fails, the input is wrong and not the way
    ways: list[Way] = []
    for rows in _probes(x):
        try:
            _try_one(trial, rows, like, generator)
        except Exception:
            return _go_alone(like)  # the net takes some numbers of rows only, so they are not its examples
        p = FarApart("weights", len(rows), max(2, like.samples), generator)
        way = _try_values(trial, rows, p, like)
        ways.append(way if ways else _try_samples(trial, rows, p, like, way))
    return max(ways, key=WAYS.index)


def _try_one(trial: Trial, x: Tensor, like: Pass, generator: torch.Generator) -> None:
    """Run the net under one sample, as the estimator draws it."""
    with trial.judging():
        trial.run(x, Pass(like.estimator, len(x), 1, generator))


def _probes(x: Tensor) -> list[Tensor]:
    """Return inputs of two different lengths: an axis that is as long as one batch is not as long as the other.

    One row alone would broadcast, and hide a mismatch.
    """
    least = max(2, len(x))
    return [x[torch.arange(rows, device=x.device) % len(x)] for rows in (least, least + 1)]


def _try_values(trial: Trial, x: Tensor, p: Pass, like: Pass) -> Way:
    """Compare samples that travel together with each of them alone, where the net draws no random numbers."""
    with trial.judging():
        try:
            expanded = trial.run(x, p, shared=False)
        except Exception:  # whatever a net says that cannot take so many rows, or whose weights are read
            return "alone"
        some = sorted({s * (p.samples - 1) // (MOST_ALONE - 1) for s in range(MOST_ALONE)})
        alone = trial.run_alone(x, p, some)
        tolerance = rounding(alone)
        if expanded[some].shape != alone.shape or not (trial.has_rolled or agree(expanded[some], alone, tolerance)):
            return _go_alone(like)
        try:
            shared = trial.run(x, p, shared=True)
        except Exception:
            return "expanded"
        return "shared" if agree(shared, expanded, tolerance) else "expanded"


def _try_samples(trial: Trial, x: Tensor, p: Pass, like: Pass, way: Way) -> Way:
    """Return ``way``, or the next one in which samples do not depend on each other in the net's present mode."""
    for each in WAYS[WAYS.index(way) : -1]:
        try:
            if trial.keeps_apart(x, p, shared=each == "shared"):
                return each
        except Exception:
            continue
    return "alone" if way == "alone" else _go_alone(like)


def _go_alone(like: Pass) -> Way:
    """Let samples go one by one; but where each row has weights of its own, that does not keep them apart."""
    if like.estimator != "weights":
        raise RuntimeError(
            f"estimator {like.estimator!r} cannot serve a net that looks across the rows of a batch, each of which has "
            "weights of its own; use estimator='weights'"
        )
    return "alone"
