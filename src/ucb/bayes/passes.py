"""One walk through a net: which weights it uses, and how many weight samples travel together.

Samples travel inside the batch axis, so the net's own ``forward`` needs no change: B examples with S samples are B*S
rows, row ``b*S + s`` being example b under weight sample s. That order makes [B*S, C, ...] and [B, S*C, ...] two
views of the same memory, which is what a grouped convolution wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ucb.bayes.posterior import Gaussian
from ucb.kernels.triton import fused, launch

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
    seed: Tensor | None = None
    """Of the noise that a GPU's kernels make themselves; ``salt`` tells their calls apart."""
    salt: int = 0
    later: dict[Gaussian, fused.Later] | None = None
    """Keeps gradients by sigma^2 until ``fused.gradients`` takes them on to rho; None lets autograd do so."""

    def weight(self, gaussian: Gaussian) -> Tensor:
        """Return the weights of this pass, [S, ...] where several samples travel together.

        They are drawn once, so a layer that is used twice and layers that share a weight see the same sample.
        """
        if self.estimator == "mean":
            return gaussian.mean
        if gaussian not in self.drawn:
            shape = (self.samples,) if self.samples > 1 else ()
            if launch.supports(gaussian.mu, gaussian.rho):
                draw = fused.sample_weights if torch.is_grad_enabled() else fused.sample
                w = draw(gaussian.mu, gaussian.rho, gaussian.keep, *self.new_noise(gaussian.mu.device), self.samples)
                self.drawn[gaussian] = w.reshape(*shape, *gaussian.mu.shape)
            else:
                self.drawn[gaussian] = gaussian.sample(shape, self.generator)
        return self.drawn[gaussian]

    def all_drawn(self, gaussian: Gaussian) -> Tensor:
        """Return the weights of this pass, [S, ...] for one sample too."""
        w = self.weight(gaussian)
        return w if self.samples > 1 else w.unsqueeze(0)

    def new_noise(self, device: torch.device) -> tuple[Tensor, int]:
        """Return seed and salt of noise that was not used before."""
        if self.seed is None:
            self.seed = fused.new_seed(device, self.generator)
        self.salt += 1
        return self.seed, self.salt

    def sigma_squared(self, gaussian: Gaussian) -> Tensor:
        """Return sigma^2, where the kernels can be used."""
        if self.later is None:
            return fused.sigma_squared(gaussian.rho, gaussian.keep)
        return fused.sigma_squared(gaussian.rho, gaussian.keep, self.later.setdefault(gaussian, fused.Later()))

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


def stack_drawn_weights(passes: Sequence[Pass]) -> dict[Gaussian, Tensor]:
    """Return the weights of all samples of some passes, [samples, ...]; a pass that skipped a layer draws its now."""
    used = list(dict.fromkeys(g for p in passes for g in p.drawn))
    return {g: torch.cat([p.all_drawn(g) for p in passes]) for g in used}


def split_samples(p: Pass, samples: Iterable[int]) -> list[Pass]:
    """Return a pass of its own for some of the samples of ``p``, with the weights that ``p`` has drawn."""
    given = [{g: w[s] for g, w in p.drawn.items()} for s in samples]
    return [Pass(p.estimator, p.rows, 1, p.generator, drawn) for drawn in given]


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


def current() -> Pass | None:
    """Return the pass that is under way, if there is one."""
    return _current.get()


def pass_for(layer: nn.Module) -> Pass:
    """Return the pass a layer has to follow. Outside of one: the mean in eval mode, one sample in training mode."""
    p = _current.get()
    if p is not None:
        return p
    if torch._C._current_graph_task_id() != -1:
        raise RuntimeError(
            "a Bayesian layer was run again during backward, as activation checkpointing does, where its weight sample "
            "is gone; use ELBO.backward() with stack=False"
        )
    return Pass("weights") if layer.training else MEAN


def run(net: nn.Module, x: Tensor, p: Pass, *, shared: bool = True) -> Tensor:
    """Run ``x`` through ``net`` once; the result is [samples, batch, ...].

    With ``shared`` the first Bayesian layer multiplies the rows, else they are multiplied before the net sees them.
    """
    with active(p):
        output = net(x if shared else p.expand(x))
    if not isinstance(output, Tensor):
        raise TypeError(f"the net must answer with one tensor, not with a {type(output).__name__}")
    if p.samples == 1:
        return output.unsqueeze(0)
    if output.shape[0] != p.rows * p.samples:
        raise RuntimeError(f"{p.rows} examples under {p.samples} samples came out as {output.shape[0]} rows")
    return p.by_sample(output)


@contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """Put a net into eval mode for the block."""
    training = [module for module in net.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


_opened_by: ContextVar[nn.Module | None] = ContextVar("ucb_opened_by", default=None)


def sample_once_per_call(root: nn.Module) -> None:
    """Make a plain ``root(x)`` in training mode one pass: a layer that is used twice in it sees one sample."""
    root.register_forward_pre_hook(_open)
    root.register_forward_hook(_close, always_call=True)


def _open(root: nn.Module, _inputs: Any) -> None:
    if root.training and _current.get() is None and torch._C._current_graph_task_id() == -1:
        _current.set(Pass("weights"))
        _opened_by.set(root)


def _close(root: nn.Module, _inputs: Any, _output: Any) -> None:
    if _opened_by.get() is root:
        _current.set(None)
        _opened_by.set(None)
