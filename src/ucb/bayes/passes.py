"""One walk through a net: which weights it uses, and how many weight samples travel together.

Samples travel inside the batch axis, so the net's own ``forward`` needs no change: B examples with S samples are B*S
rows, row ``b*S + s`` being example b under weight sample s. That order makes [B*S, C, ...] and [B, S*C, ...] two
views of the same memory, which is what a grouped convolution wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ucb.bayes.checks import count, one_of
from ucb.bayes.posterior import Gaussian

Estimator = Literal["weights", "local", "flipout"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)


@dataclass(eq=False)
class Pass:
    """What the Bayesian layers need to know while one batch walks through them."""

    estimator: Literal["mean", "weights", "local", "flipout"]
    rows: int = 0
    samples: int = 1
    generator: torch.Generator | None = None
    drawn: dict[Gaussian, Tensor] = field(default_factory=dict)
    perturbed: set[Gaussian] = field(default_factory=set)

    def weight(self, gaussian: Gaussian) -> Tensor:
        """Return the weights of this pass, [S, ...] where several samples travel together.

        They are drawn once, so a layer that is used twice and layers that share a weight see the same sample.
        """
        if self.estimator == "mean":
            return gaussian.mean
        if gaussian not in self.drawn:
            shape = (self.samples,) if self.samples > 1 else ()
            self.drawn[gaussian] = gaussian.sample(shape, self.generator)
        return self.drawn[gaussian]

    def samples_drawn(self) -> list[dict[Gaussian, Tensor]]:
        """Return the weights that were drawn, sample by sample."""
        if self.samples == 1:
            return [self.drawn]
        return [{g: w[s] for g, w in self.drawn.items()} for s in range(self.samples)]

    def noise(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Draw standard normal noise."""
        return torch.empty(shape, dtype=like.dtype, device=like.device).normal_(generator=self.generator)

    def signs(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Draw -1 and 1 with equal odds."""
        bits = torch.empty(shape, dtype=like.dtype, device=like.device).random_(2, generator=self.generator)
        return bits.mul_(2).sub_(1)

    def is_expanded(self, x: Tensor) -> bool:
        """Say whether ``x`` has a row for each sample already (True) or is shared by all of them (False)."""
        if x.shape[0] == self.rows * self.samples:
            return True
        if x.shape[0] == self.rows:
            return False
        raise RuntimeError(
            f"a Bayesian layer got {x.shape[0]} rows where the batch has {self.rows} examples and {self.samples} "
            "samples: the net folds another axis into the batch. Use estimator='weights'"
        )

    def by_sample(self, x: Tensor) -> Tensor:
        """Return expanded rows as [samples, batch, ...]."""
        return x.reshape(self.rows, self.samples, *x.shape[1:]).transpose(0, 1)

    def expand(self, x: Tensor) -> Tensor:
        """Give every sample its own row."""
        return x if self.is_expanded(x) else x.repeat_interleave(self.samples, 0)

    def perturb_once(self, gaussian: Gaussian) -> None:
        """Refuse noise on the activations of a weight that is used twice: each use would see other weights."""
        if gaussian in self.perturbed:
            raise RuntimeError(
                f"estimator {self.estimator!r} cannot serve a layer, or a shared weight, that is used twice in one "
                "pass: each use would see different weights. Use estimator='weights'"
            )
        self.perturbed.add(gaussian)


MEAN = Pass("mean")

_current: ContextVar[Pass | None] = ContextVar("ucb_pass", default=None)


@contextmanager
def active(p: Pass) -> Iterator[Pass]:
    """Make ``p`` the pass that every Bayesian layer follows inside the block."""
    token = _current.set(p)
    try:
        yield p
    finally:
        _current.reset(token)


def pass_for(layer: nn.Module) -> Pass:
    """Return the pass a layer has to follow. Outside of one: the mean in eval mode, one sample in training mode."""
    p = _current.get()
    if p is not None:
        return p
    return Pass("weights") if layer.training else MEAN


def forward(
    net: nn.Module,
    x: Tensor,
    samples: int = 1,
    estimator: Estimator = "weights",
    *,
    stack: bool | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run ``x`` through ``net`` under ``samples`` weight samples; the result is [samples, batch, ...].

    ``stack`` sends all samples through together (more memory, fewer and larger operations) or one after the other.
    By default they go together on a GPU and for ``local`` and ``flipout``, where they share the first layer's work.
    """
    passes = plan(x, samples, estimator, stack, generator)
    outputs = [walk(net, x, p) for p in passes]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def plan(
    x: Tensor,
    samples: int,
    estimator: Estimator,
    stack: bool | None = None,
    generator: torch.Generator | None = None,
) -> list[Pass]:
    """Return the passes that bring ``x`` through a net under ``samples`` samples: one for all, or one each."""
    count("samples", samples)
    one_of("estimator", estimator, ESTIMATORS)
    if stack is None:
        stack = estimator != "weights" or x.is_cuda
    together = samples if stack else 1
    return [Pass(estimator, x.shape[0], together, generator) for _ in range(samples // together)]


def walk(net: nn.Module, x: Tensor, p: Pass) -> Tensor:
    """Run ``x`` through ``net`` under the pass ``p``; the result is [samples, batch, ...]."""
    how = "shared" if p.samples == 1 else _way_to_travel(net, x, p.samples)
    if how != "alone":
        return _walk(net, x, p, shared=how == "shared")
    alone = [Pass(p.estimator, p.rows, 1, p.generator) for _ in range(p.samples)]
    outputs = torch.cat([_walk(net, x, q) for q in alone])
    p.drawn = {g: torch.stack([q.drawn[g] for q in alone]) for g in alone[0].drawn}
    return outputs


def mean_forward(net: nn.Module, x: Tensor) -> Tensor:
    """Run ``x`` through ``net`` with every weight at its mean."""
    with active(MEAN):
        output: Tensor = net(x)
    return output


def _walk(net: nn.Module, x: Tensor, p: Pass, shared: bool = True) -> Tensor:
    with active(p):
        output: Tensor = net(x if shared else p.expand(x))
    if p.samples == 1:
        return output.unsqueeze(0)
    if output.shape[0] != p.rows * p.samples:
        raise RuntimeError(f"{p.rows} examples under {p.samples} samples came out as {output.shape[0]} rows")
    return p.by_sample(output)


Way = Literal["shared", "expanded", "alone"]
_known_ways: WeakKeyDictionary[nn.Module, dict[int, Way]] = WeakKeyDictionary()


@torch.no_grad()
def _way_to_travel(net: nn.Module, x: Tensor, samples: int) -> Way:
    """Say how several samples may travel through ``net`` together.

    ``shared``: the input stays B rows until the first Bayesian layer multiplies them, which saves most of that layer's
    work. ``expanded``: B*S rows from the start, for a net that adds its input to a later layer's output. ``alone``: one
    by one, for a net that reads weights directly or folds another axis into the batch. No rule tells them apart, so
    they are tried once for each net, on two rows, in eval mode and with the same weights.
    """
    known = _known_ways.setdefault(net, {})
    if samples not in known:
        x = torch.cat([x[:2], x[:2]])[:2]  # one row alone would broadcast and hide a mismatch
        training = [module for module in net.modules() if module.training]
        net.eval()
        try:
            known[samples] = _try_ways(net, x, samples)
        finally:
            for module in training:
                module.training = True
    return known[samples]


def _try_ways(net: nn.Module, x: Tensor, samples: int) -> Way:
    p = Pass("weights", len(x), samples, torch.Generator(x.device).manual_seed(0))
    try:
        expanded = _walk(net, x, p, shared=False)
    except RuntimeError:
        _walk(net, x, Pass("weights", len(x)))  # if this fails too, the input is wrong and not the way
        return "alone"
    try:
        shared = _walk(net, x, replace(p, perturbed=set()), shared=True)
    except RuntimeError:
        return "expanded"
    same = shared.shape == expanded.shape and torch.allclose(shared, expanded, rtol=1e-3, atol=1e-4)
    return "shared" if same else "expanded"
