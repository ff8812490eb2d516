"""One walk through a net: which weights it uses, and how many weight samples travel together.

Samples travel inside the batch axis, so the net's own ``forward`` needs no change: B examples with S samples are B*S
rows, row ``b*S + s`` being example b under weight sample s. That order makes [B*S, C, ...] and [B, S*C, ...] two
views of the same memory, which is what a grouped convolution wants.

A batch is a tensor, a tuple of a net's inputs or a mapping of its keyword inputs, and a net's answer may be more than
one tensor: what is known of either form is here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from ucb.bayes.posterior import Gaussian, gaussians
from ucb.kernels.triton import fused, launch

Estimator = Literal["weights", "local", "flipout"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)

Batch = Tensor | Sequence[Any] | Mapping[str, Any]
"""What goes through a net at once: ``net(x)`` for a tensor, ``net(*x)`` for a tuple, ``net(**x)`` for a mapping.

Its length is that of its first tensor. Tensors with a first axis as long as that are rows, one for each example; the
rest (flags, None, a table that all examples share) goes along as it is.
"""
Output = Callable[[Any], Tensor]
"""Picks the tensor that counts from a net's answer."""


def first_tensor(x: Batch) -> Tensor:
    """Return the tensor whose first axis is the batch: the first that has an axis."""
    found = x if isinstance(x, Tensor) and x.dim() else next((t for t in _tensors(x) if t.dim()), None)
    if found is None:
        raise TypeError(
            "a batch is a tensor, or a tuple or mapping of a net's inputs, with its examples along the first axis of "
            f"the first tensor; there is none in this {type(x).__name__}"
        )
    return found


def count_rows(x: Batch) -> int:
    """Return how many examples a batch has."""
    return first_tensor(x).shape[0]


def map_rows(change: Callable[[Tensor], Tensor], x: Any) -> Any:
    """Change every tensor of a batch that has one row for each example."""
    return change(x) if isinstance(x, Tensor) else _map_parts(change, x, count_rows(x))


def take_rows(x: Any, rows: Tensor | slice) -> Any:
    """Return some of a batch's examples."""
    return map_rows(lambda tensor: tensor[rows], x)


def split_rows(x: Any, size: int) -> list[Any]:
    """Return a batch in pieces of ``size`` examples; an empty one is one piece."""
    return [take_rows(x, slice(start, start + size)) for start in range(0, max(1, count_rows(x)), size)]


def join_rows(batches: Iterable[Any]) -> list[Any]:
    """Return batches as one or, where padding or other shapes tell them apart, as one for each of these."""
    groups: dict[object, list[Any]] = {}
    for x in batches:
        groups.setdefault(_shapes(x, count_rows(x)), []).append(x)
    return [_join(group, count_rows(group[0])) for group in groups.values()]


def list_rows(x: Any) -> list[Tensor]:
    """Return the tensors of a batch that have one row for each example."""
    found: list[Tensor] = []
    map_rows(lambda tensor: found.append(tensor) or tensor, x)  # type: ignore[func-returns-value]
    return found


def kind_of(x: Any, rows: int | None = None) -> tuple[object, ...]:
    """Return what the path of a batch through a net may depend on, whatever its numbers and its length.

    These are its form, the types of its tensors and which of their axes are longer than 1, and values such as flags.
    """
    if isinstance(x, Tensor):
        return x.dtype, rows is None or x.shape[:1] == (rows,), tuple(size > 1 for size in x.shape[1:])
    rows = count_rows(x) if rows is None else rows
    if isinstance(x, Mapping):
        return tuple((name, kind_of(part, rows)) for name, part in x.items())
    if isinstance(x, tuple | list):
        return tuple(kind_of(part, rows) for part in x)
    return type(x), x if isinstance(x, bool | int | float | str) else None


def call(net: nn.Module, x: Batch) -> Any:
    """Run a batch through a net, and return whatever it answers."""
    if isinstance(x, Mapping):
        return net(**x)
    return net(*x) if isinstance(x, tuple | list) else net(x)


def pick_output(
    answer: Any, output: Output | None = None, names: Sequence[str] = ("logits",), who: str = "the net"
) -> Tensor:
    """Return the tensor that counts in an answer: what ``output`` picks; else the answer itself or one part of it.

    That is the part that has one of the names, the first of a tuple or list, or the only one of a mapping.
    """
    if output is not None:
        answer = output(answer)
        if not isinstance(answer, Tensor):
            raise TypeError(f"output must pick one tensor from the answer of {who}, not a {type(answer).__name__}")
    if isinstance(answer, Tensor):
        return answer
    if isinstance(answer, Proxy):  # it stands for a tensor while torch.fx traces a net
        return cast(Tensor, answer)
    parts = answer if isinstance(answer, Mapping) else {name: getattr(answer, name, None) for name in names}
    found = next((parts[name] for name in names if parts.get(name) is not None), None)
    if found is None and isinstance(answer, tuple | list):
        found = answer[0] if answer else None
    elif found is None and isinstance(answer, Mapping) and len(answer) == 1:
        found = next(iter(answer.values()))
    if isinstance(found, Tensor):
        return found
    held = [type(part).__name__ for part in answer] if isinstance(answer, tuple | list) else list(_names(answer))
    said = f" of {', '.join(held)}" if held else ""
    raise TypeError(
        f"{who} must answer with one tensor, not with a {type(answer).__name__}{said}: give output=, a "
        "function that picks the tensor"
    )


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, Mapping | tuple | list):
        for part in x.values() if isinstance(x, Mapping) else x:
            yield from _tensors(part)


def _map_parts(change: Callable[[Tensor], Tensor], x: Any, rows: int) -> Any:
    if isinstance(x, Tensor):
        return change(x) if x.shape[:1] == (rows,) else x
    if isinstance(x, Mapping):
        return {name: _map_parts(change, part, rows) for name, part in x.items()}
    if isinstance(x, tuple | list):
        parts = [_map_parts(change, part, rows) for part in x]
        return x._make(parts) if hasattr(x, "_make") else type(x)(parts)
    return x


def _shapes(x: Any, rows: int) -> object:
    if isinstance(x, Tensor):
        return x.shape[1:] if x.shape[:1] == (rows,) else x.shape
    if isinstance(x, Mapping):
        return tuple((name, _shapes(part, rows)) for name, part in x.items())
    return tuple(_shapes(part, rows) for part in x) if isinstance(x, tuple | list) else None


def _join(batches: list[Any], rows: int) -> Any:
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat(batches) if first.shape[:1] == (rows,) else first
    columns = zip(*(list_rows(x) for x in batches), strict=True)
    joined = iter([torch.cat(column) for column in columns])
    return map_rows(lambda _: next(joined), first)


def _names(answer: Any) -> Iterable[str]:
    """Return the names of an answer's parts."""
    if isinstance(answer, Mapping):
        return answer.keys()
    return (name for name in getattr(answer, "__dict__", ()) if not name.startswith("_"))


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
        bits = torch.randint(2, shape, generator=self.generator, dtype=like.dtype, device=like.device)
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


class _UnderWay:
    """The pass that layers follow, and the net whose plain call has opened it."""

    current: Pass | None = None
    opened_by: nn.Module | None = None


class _Thread(threading.local):
    """What is under way in each thread.

    torch.compile reads a threading.local, though no ContextVar; but what it writes to one is lost, so that an ordinary
    object is kept in it.
    """

    def __init__(self) -> None:
        self.here = _UnderWay()


_thread = _Thread()


@contextmanager
def active(p: Pass) -> Iterator[Pass]:
    """Make ``p`` the pass that every Bayesian layer follows inside the block."""
    here = _thread.here
    before, here.current = here.current, p
    try:
        yield p
    finally:
        here.current = before


def current() -> Pass | None:
    """Return the pass that is under way, if there is one."""
    return _thread.here.current


def _is_in_backward() -> bool:
    """Say whether autograd runs this, as activation checkpointing lets it; torch.compile cannot ask."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def pass_for(layer: nn.Module) -> Pass:
    """Return the pass a layer has to follow. Outside of one: the mean in eval mode, one sample in training mode."""
    p = _thread.here.current
    if p is not None:
        return p
    if _is_in_backward():
        raise RuntimeError(
            "a Bayesian layer was run again during backward, as activation checkpointing does, where its weight sample "
            "is gone; use ELBO.backward() with stack=False"
        )
    return Pass("weights") if layer.training else MEAN


def _is_compiled(net: nn.Module) -> bool:
    """Say whether torch.compile made the net: weights that are drawn before it runs are as any net's, and one graph."""
    return "_orig_mod" in net._modules or net._compiled_call_impl is not None


def run(net: nn.Module, x: Batch, p: Pass, *, shared: bool = True) -> Tensor:
    """Run ``x`` through ``net`` once; the result is [samples, batch, ...].

    With ``shared`` the first Bayesian layer multiplies the rows, else they are multiplied before the net sees them.
    """
    if p.estimator == "weights" and not p.drawn and _is_compiled(net):
        for _, gaussian in gaussians(net):
            p.weight(gaussian)
    with active(p):
        output = pick_output(call(net, x if shared else map_rows(p.expand, x)))
    if p.samples == 1:
        return output.unsqueeze(0)
    if output.shape[:1] != (p.rows * p.samples,):
        came = output.shape[0] if output.dim() else "no"
        raise RuntimeError(f"{p.rows} examples under {p.samples} samples came out as {came} rows")
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


def sample_once_per_call(root: nn.Module) -> None:
    """Make a plain ``root(x)`` in training mode one pass: a layer that is used twice in it sees one sample."""
    root.register_forward_pre_hook(_open)
    root.register_forward_hook(_close, always_call=True)


def answer_with(root: nn.Module, output: Output) -> None:
    """Make a net answer with what ``output`` picks from its answer, however it is called, copied or wrapped."""
    root.register_forward_hook(partial(_pick, output))


def _pick(output: Output, _root: nn.Module, _inputs: Any, answer: Any) -> Tensor:
    return pick_output(answer, output)


def _open(root: nn.Module, _inputs: Any) -> None:
    if root.training and _thread.here.current is None and not _is_in_backward():
        _thread.here.current = Pass("weights")
        _thread.here.opened_by = root


def _close(root: nn.Module, _inputs: Any, _output: Any) -> None:
    if _thread.here.opened_by is root:
        _thread.here.current = None
        _thread.here.opened_by = None
