"""Trying a net that nobody has read, without a trace, to see whether samples that travel together stay apart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from ucb.bayes.passes import Pass, run
from ucb.bayes.posterior import Gaussian


@dataclass(eq=False)
class FarApart(Pass):
    """Draws weights that are far from each other and from 0: rows that look at each other show it, sure as they are."""

    def weight(self, gaussian: Gaussian) -> Tensor:
        """Add noise of the size of fresh weights, 1 / sqrt(fan-in)."""
        if gaussian not in self.drawn:
            w, fan_in = super().weight(gaussian), gaussian.mu[:1].numel() if gaussian.mu.dim() else 1
            self.drawn[gaussian] = w + self.noise(tuple(w.shape), w) / max(1, fan_in) ** 0.5
        return self.drawn[gaussian]


class Dice:
    """The random numbers that a net may draw by itself: PyTorch's, Python's and NumPy's."""

    def __init__(self, net: nn.Module) -> None:
        self.devices = sorted({p.device for p in net.parameters() if p.is_cuda}, key=str)
        self.before = self._states()

    def _states(self) -> tuple[list[Tensor], object, dict[str, Any]]:
        tensors = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self.devices)]
        return tensors, random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002 (nets use it)

    def rewind(self) -> None:
        """Bring them back to where they were."""
        tensors, pythons, numpys = self.before
        torch.set_rng_state(tensors[0])
        for device, state in zip(self.devices, tensors[1:], strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(cast(Any, pythons))
        np.random.set_state(numpys)  # noqa: NPY002

    def have_rolled(self) -> bool:
        """Say whether any was drawn."""
        (tensors, pythons, numpys), (now, of_python, of_numpy) = self.before, self._states()
        is_same = all(torch.equal(a, b) for a, b in zip(tensors, now, strict=True)) and pythons == of_python
        return not is_same or any(not np.array_equal(v, of_numpy["state"][k]) for k, v in numpys["state"].items())


@dataclass(eq=False)
class Trial:
    """A net while it is tried. Every run has the same random numbers."""

    net: nn.Module
    dice: Dice
    learning: list[nn.Module]
    """The modules that are in training mode."""
    called: set[nn.Module] = field(default_factory=set)
    has_rolled: bool = False
    """Whether the last run has drawn random numbers."""

    def run(self, x: Tensor, p: Pass, *, shared: bool = True) -> Tensor:
        """Run ``x`` through the net on the pass ``p``."""
        self.dice.rewind()
        output = run(self.net, x, p, shared=shared)
        self.has_rolled = self.dice.have_rolled()
        return output

    def run_alone(self, x: Tensor, p: Pass, samples: list[int]) -> Tensor:
        """Run the net under some of the samples of ``p``, one by one."""
        given = [{g: w[s] for g, w in p.drawn.items()} for s in samples]
        return torch.cat([self.run(x, Pass("weights", len(x), 1, p.generator, drawn)) for drawn in given])

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Leave training mode, where nets draw random numbers, for the block."""
        for module in self.learning:
            module.training = False
        try:
            yield
        finally:
            for module in self.learning:
                module.training = True

    def keeps_apart(self, x: Tensor, p: Pass, *, shared: bool) -> bool:
        """Say whether the samples of ``p``, which travel together, do not depend on each other's weights.

        Those of half the samples are changed: what the others say must stay, digit for digit but for the order of sums.
        It is seen in the mode that the net is in, and whatever random numbers it draws, since they stay the same.
        """
        before = self.run(x, p, shared=shared)
        is_even = torch.arange(p.samples, device=x.device) % 2 == 0
        for kept in (is_even, ~is_even):
            drawn = {g: torch.where(kept.view(-1, *[1] * (w.dim() - 1)), w, -4 * w) for g, w in p.drawn.items()}
            after = self.run(x, replace(p, drawn=drawn), shared=shared)
            if not agree(after[kept], before[kept], torch.finfo(_at_least_single(before)).eps ** 0.75):
                return False
        return True


@contextmanager
def untouched(net: nn.Module) -> Iterator[Trial]:
    """Let a net be tried in the block; afterwards mode, buffers and random numbers are as before."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in net.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    trial = Trial(net, Dice(net), [module for module in net.modules() if module.training])
    hook = register_module_forward_pre_hook(lambda module, _: trial.called.add(module))
    try:
        with torch.no_grad():
            yield trial
    finally:
        hook.remove()
        trial.dice.rewind()
        for module, name, buffer, value in buffers:
            module._buffers[name] = buffer
            buffer.data.copy_(value)  # unseen by autograd, which may have kept the buffer: it is what it was


def agree(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Say whether outputs [samples, ...] are the same, but for rounding relative to the largest of each sample."""
    if found.shape != wanted.shape or found.numel() == 0:
        return found.shape == wanted.shape
    dtype = _at_least_single(wanted)
    found, wanted = found.to(dtype).flatten(1), wanted.to(dtype).flatten(1)
    size = wanted.abs().nan_to_num(0, 0, 0).amax(1, keepdim=True)
    same = (found == wanted) | (found.isnan() & wanted.isnan()) | ((found - wanted).abs() <= tolerance * size)
    return bool(same.all())


def _at_least_single(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def rounding(output: Tensor) -> float:
    """Return how far outputs may differ that were computed in two ways: half of the digits of the products."""
    kind = output.device.type
    eps = torch.finfo(output.dtype if output.is_floating_point() else torch.float32).eps
    if kind == "cuda" and output.dtype == torch.float32:
        eps = max(eps, 2.0**-10)  # convolutions use TF32 there unless told otherwise
    if torch.is_autocast_enabled(kind):
        eps = max(eps, torch.finfo(torch.get_autocast_dtype(kind)).eps)
    return float(eps**0.5)
