"""Running a net under weight samples, together in one batch where the net allows it.

A net's ``forward`` may mix the rows of a batch. Probing finds out: it runs the net, and leaves it as it was.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn

from ucb.bayes.passes import (
    ESTIMATORS,
    MEAN,
    Batch,
    Estimator,
    Pass,
    count_rows,
    eval_mode,
    first_tensor,
    kind_of,
    run,
    split_samples,
    stack_drawn_weights,
    take_rows,
)
from ucb.bayes.posterior import Gaussian
from ucb.checks import count, one_of


@dataclass(eq=False)
class FarApart(Pass):
    """Draws weights far from each other and from 0, so that rows which mix show it, however small sigma is."""

    def weight(self, gaussian: Gaussian) -> Tensor:
        """Add noise of the size of fresh weights, 1 / sqrt(fan-in)."""
        if gaussian not in self.drawn:
            w, fan_in = super().weight(gaussian), gaussian.mu[:1].numel() if gaussian.mu.dim() else 1
            self.drawn[gaussian] = w + self.noise(tuple(w.shape), w) / max(1, fan_in) ** 0.5
        return self.drawn[gaussian]


class RandomState:
    """The state of the generators that a net may draw from by itself: PyTorch's, Python's and NumPy's."""

    def __init__(self, net: nn.Module) -> None:
        self.devices = sorted({p.device for p in net.parameters() if p.is_cuda}, key=str)
        self.before = self._states()

    def _states(self) -> tuple[list[Tensor], object, dict[str, Any]]:
        tensors = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self.devices)]
        return tensors, random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002 (nets use it)

    def rewind(self) -> None:
        """Set the generators back to where they were."""
        tensors, pythons, numpys = self.before
        torch.set_rng_state(tensors[0])
        for device, state in zip(self.devices, tensors[1:], strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(cast(Any, pythons))
        np.random.set_state(numpys)  # noqa: NPY002

    def has_changed(self) -> bool:
        """Say whether any random number was drawn."""
        (tensors, pythons, numpys), (now, of_python, of_numpy) = self.before, self._states()
        is_same = all(torch.equal(a, b) for a, b in zip(tensors, now, strict=True)) and pythons == of_python
        return not is_same or any(not np.array_equal(v, of_numpy["state"][k]) for k, v in numpys["state"].items())


@dataclass(eq=False)
class Probe:
    """A net while it is probed. Every run has the same random numbers."""

    net: nn.Module
    random_state: RandomState
    called: set[nn.Module] = field(default_factory=set)
    """The modules that some run has used."""
    is_random: bool = False
    """Whether the net itself has drawn random numbers in the last run."""

    def run(self, x: Batch, p: Pass, *, shared: bool = True) -> Tensor:
        """Run ``x`` through the net on the pass ``p``."""
        self.random_state.rewind()
        output = run(self.net, x, p, shared=shared)
        self.is_random = self.random_state.has_changed()
        return output

    def keeps_apart(self, x: Batch, p: Pass, *, shared: bool) -> bool:
        """Say whether the samples of ``p``, which travel together, do not depend on each other's weights.

        The weights of half the samples are changed: the other samples' outputs must stay the same but for the order of
        sums. The net stays in its mode, and may draw random numbers, which are the same in every run.
        """
        before = self.run(x, p, shared=shared)
        is_even = torch.arange(p.samples, device=before.device) % 2 == 0
        for kept in (is_even, ~is_even):
            drawn = {g: torch.where(kept.view(-1, *[1] * (w.dim() - 1)), w, -4 * w) for g, w in p.drawn.items()}
            after = self.run(x, replace(p, drawn=drawn), shared=shared)
            if not agree(after[kept], before[kept], torch.finfo(_promote_to_single(before)).eps ** 0.75):
                return False
        return True


@contextmanager
def probe_net(net: nn.Module) -> Iterator[Probe]:
    """Let a net be probed in the block; afterwards mode, buffers, attributes and random numbers are as before."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in net.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    attributes = [(module, dict(vars(module))) for module in net.modules()]
    probe = Probe(net, RandomState(net))
    hooks = [module.register_forward_pre_hook(lambda module, _: probe.called.add(module)) for module in net.modules()]
    try:
        with torch.no_grad(), _run_uncompiled():
            yield probe
    finally:
        for hook in hooks:
            hook.remove()
        probe.random_state.rewind()
        for module, before in attributes:  # a hidden state of the probe's rows would not fit the net's own
            vars(module).clear()
            vars(module).update(before)
        for module, name, buffer, value in buffers:
            module._buffers[name] = buffer
            buffer.data.copy_(value)  # unseen by autograd, which may have kept the buffer: it is what it was


def _run_uncompiled() -> AbstractContextManager[Any]:
    """Let nets that torch.compile has wrapped run as they were: each run of a probe would be compiled by itself."""
    if "torch._dynamo" not in sys.modules:  # it takes long to load, and what is compiled has loaded it
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def agree(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Say whether outputs [samples, ...] are the same, but for rounding relative to the largest of each sample."""
    if found.shape != wanted.shape or found.numel() == 0:
        return found.shape == wanted.shape
    dtype = _promote_to_single(wanted)
    found, wanted = found.to(dtype).flatten(1), wanted.to(dtype).flatten(1)
    size = wanted.abs().nan_to_num(0, 0, 0).amax(1, keepdim=True)
    same = (found == wanted) | (found.isnan() & wanted.isnan()) | ((found - wanted).abs() <= tolerance * size)
    return bool(same.all())


def _promote_to_single(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def rounding_tolerance(output: Tensor) -> float:
    """Return how far outputs may differ that were computed in two ways: half of the digits of the products."""
    kind = output.device.type
    eps = torch.finfo(output.dtype if output.is_floating_point() else torch.float32).eps
    if kind == "cuda" and output.dtype == torch.float32:
        eps = max(eps, 2.0**-10)  # convolutions use TF32 there unless told otherwise
    if torch.is_autocast_enabled(kind):
        eps = max(eps, torch.finfo(torch.get_autocast_dtype(kind)).eps)
    return float(eps**0.5)


Batching = Literal["shared", "expanded", "alone"]
"""How samples travel.

``shared``: the input stays B rows until the first Bayesian layer multiplies them, which saves most of its work.
``expanded``: B*S rows from the start, for a net that adds its input to a later layer's output.
``alone``: one sample after the other, for a net that mixes rows, reads weights directly or folds another axis into the
batch.
"""

BATCHINGS: tuple[Batching, ...] = ("shared", "expanded", "alone")
MOST_ALONE = 8
"""How many of the samples, at most, are also run alone to compare."""

Kind = tuple[object, ...]
"""An estimator, a number of samples, and a kind of batch (:func:`ucb.bayes.passes.kind_of`)."""


class _Findings:
    """What probing found of a net: the modules that it calls, and how samples may travel in each of their modes."""

    def __init__(self, net: nn.Module, names: set[str]) -> None:
        self.names = names
        self.batchings: dict[tuple[Kind, tuple[bool, ...]], Batching] = {}
        self._modules: list[ReferenceType[nn.Module]] = [ref(m) for n, m in net.named_modules() if n in names]

    def modes(self) -> tuple[bool, ...]:
        """Return which of the modules are in training mode."""
        return tuple((module := weak()) is not None and module.training for weak in self._modules)


_findings: WeakKeyDictionary[nn.Module, _Findings] = WeakKeyDictionary()


def choose_sample_batching(net: nn.Module, x: Batch, p: Pass) -> Batching:
    """Say how the samples of a pass like ``p`` may travel through ``net``.

    The net is probed once for its mode, the number of samples and the kind of input. An estimator that puts noise on
    activations is probed too: a net whose rows are not its examples, or that mixes them, is refused.
    """
    if count_rows(x) == 0 or (p.estimator == "weights" and p.samples == 1):
        return "shared"
    found = _findings.get(net)
    batching = None if found is None else found.batchings.get((_kind(x, p), found.modes()))
    if batching is None:
        with probe_net(net) as probe:
            batching = _try_batchings(probe, x, p)
        remember(net, x, p, batching, probe.called)
    return batching


def remember(net: nn.Module, x: Batch, p: Pass, batching: Batching, called: Collection[nn.Module] = ()) -> None:
    """Let samples travel in this way from now on; ``called`` are the modules that were used."""
    found = _findings.get(net) or _Findings(net, set())
    names = {name for name, module in net.named_modules() if module in called}
    if not names <= found.names:  # what was found with fewer modules may not hold in each of these modules' modes
        found = _Findings(net, names | found.names)
    found.batchings[_kind(x, p), found.modes()] = batching
    _findings[net] = found


def forget(net: nn.Module) -> bool:
    """Forget what was found of a net, which may have changed; say whether anything was."""
    return bool(_findings.pop(net, None))


def _kind(x: Batch, p: Pass) -> Kind:
    return p.estimator, p.samples, *kind_of(x)


def _try_batchings(probe: Probe, x: Batch, like: Pass) -> Batching:
    device, count = first_tensor(x).device, count_rows(x)
    generator = torch.Generator(device).manual_seed(0)
    output = _try_one(probe, x, like, generator)  # if this fails, the input is wrong and not the batching
    if output.dim() == 1:
        return _go_alone(like)  # one number for all rows
    batchings: list[Batching] = []
    # Two lengths: an axis that is as long as one is not as long as the other. One row would broadcast, and hide this.
    least = max(2, count)
    for length in (least, least + 1):
        rows = take_rows(x, torch.arange(length, device=device) % count)
        try:
            _try_one(probe, rows, like, generator)
        except Exception:
            return _go_alone(like)  # the net takes some numbers of rows only, so they are not its examples
        p = FarApart("weights", length, max(2, like.samples), generator)
        batching = _try_values(probe, rows, p, like)
        batchings.append(batching if batchings else _try_samples(probe, rows, p, like, batching))
    return max(batchings, key=BATCHINGS.index)


def _try_one(probe: Probe, x: Batch, like: Pass, generator: torch.Generator) -> Tensor:
    """Run the net under one sample, as the estimator draws it."""
    with eval_mode(probe.net):
        return probe.run(x, Pass(like.estimator, count_rows(x), 1, generator))


def _try_values(probe: Probe, x: Batch, p: Pass, like: Pass) -> Batching:
    """Compare samples that travel together with some of them alone, in eval mode; a random net cannot be compared."""
    with eval_mode(probe.net):
        try:
            expanded = probe.run(x, p, shared=False)
        except Exception:  # whatever a net raises that cannot take so many rows, or whose weights are read
            return "alone"
        some = sorted({s * (p.samples - 1) // (MOST_ALONE - 1) for s in range(MOST_ALONE)})
        alone = torch.cat([probe.run(x, q) for q in split_samples(p, some)])
        tolerance = rounding_tolerance(alone)
        if expanded[some].shape != alone.shape or not (probe.is_random or agree(expanded[some], alone, tolerance)):
            return _go_alone(like)
        try:
            shared = probe.run(x, p, shared=True)
        except Exception:
            return "expanded"
        return "shared" if agree(shared, expanded, tolerance) else "expanded"


def _try_samples(probe: Probe, x: Batch, p: Pass, like: Pass, batching: Batching) -> Batching:
    """Return ``batching``, or the next one in which samples do not depend on each other in the net's present mode."""
    for each in BATCHINGS[BATCHINGS.index(batching) : -1]:
        try:
            if probe.keeps_apart(x, p, shared=each == "shared"):
                return each
        except Exception:
            continue
    return "alone" if batching == "alone" else _go_alone(like)


def _go_alone(like: Pass) -> Batching:
    """Let samples travel alone, unless the estimator gives each row weights of its own: that would not help then."""
    if like.estimator != "weights":
        raise RuntimeError(
            f"estimator {like.estimator!r} cannot serve a net that looks across the rows of a batch, each of which has "
            "weights of its own; use estimator='weights'"
        )
    return "alone"


def forward(
    net: nn.Module,
    x: Batch,
    samples: int = 1,
    estimator: Estimator = "weights",
    *,
    stack: bool | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run ``x`` through ``net`` under ``samples`` weight samples; the result is [samples, batch, ...].

    ``x`` is a tensor, a tuple of the net's inputs or a mapping of its keyword inputs; the first axis of its first
    tensor is the batch. ``stack`` sends all samples through together (more memory, fewer and larger
    operations) or one after the other. By default they go together on a GPU and for ``local`` and ``flipout``, where
    they share the first layer's work.
    """
    outputs = [walk(net, x, p) for p in plan(x, samples, estimator, stack, generator)]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def mean_forward(net: nn.Module, x: Batch) -> Tensor:
    """Run ``x`` through ``net`` with every weight at its mean."""
    return run(net, x, MEAN)[0]


def plan(
    x: Batch, samples: int, estimator: Estimator, stack: bool | None = None, generator: torch.Generator | None = None
) -> list[Pass]:
    """Return the passes that bring ``x`` through a net under ``samples`` samples: one for all, or one each."""
    count("samples", samples)
    one_of("estimator", estimator, ESTIMATORS)
    first = first_tensor(x)
    if stack is None:
        stack = estimator != "weights" or first.is_cuda
    together = samples if stack else 1
    return [Pass(estimator, first.shape[0], together, generator) for _ in range(samples // together)]


def walk(net: nn.Module, x: Batch, p: Pass) -> Tensor:
    """Run ``x`` through ``net`` under the pass ``p``, with the batching that the net allows."""
    try:
        return _walk(net, x, p, choose_sample_batching(net, x, p))
    except Exception:
        if p.samples == 1 or not forget(net):
            raise
    first = BATCHINGS.index(choose_sample_batching(net, x, p))  # the net may have changed since it was probed
    for batching in BATCHINGS[first:]:  # or may take other layers now: some skip layers at random
        p.perturbed.clear()
        try:
            output = _walk(net, x, p, batching)
        except Exception:
            if batching == BATCHINGS[-1]:
                raise
            continue
        remember(net, x, p, batching)
        break
    return output


def _walk(net: nn.Module, x: Batch, p: Pass, batching: Batching) -> Tensor:
    if batching != "alone" or p.samples == 1:
        return run(net, x, p, shared=batching != "expanded")
    alone = split_samples(p, range(p.samples))
    outputs = torch.cat([run(net, x, q) for q in alone])
    p.drawn = stack_drawn_weights(alone)
    return outputs
