"""Several runs' methods as one, whose tensors have a leading axis of runs: their steps are taken at once.

Each run's own method stays what it is. The stack is a copy that takes the steps of a task, and every method gets its
part back when its losses are looked at: best weights, checkpoints and a task's end know nothing of it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ucb.bayes.kernels import batches
from ucb.bayes.kernels.noise import move_on, seeds_ahead
from ucb.bayes.layers import BayesLinear
from ucb.bayes.posterior import Gaussian
from ucb.engine.evaluate import BYTES
from ucb.engine.graphs import CapturedSteps, Recorded
from ucb.methods import Method

Labelled = tuple[Tensor, Tensor]
"""Inputs, ready for the net, and their labels."""


def kind_of(method: Method) -> Hashable | None:
    """Return what methods must have in common to be stacked, or None where that one cannot be."""
    is_stackable = vars(type(method)).get("stacks", False) and method.can_stack
    if not is_stackable or method.adjusts_gradients or not _is_of_linear_layers(method.net):
        return None
    settings = dataclasses.asdict(method.settings)
    common = tuple((name, value) for name, value in settings.items() if name not in method.free_settings)
    return type(method), common, tuple((name, p.shape) for name, p in method.net.named_parameters())


def _is_of_linear_layers(net: nn.Module) -> bool:
    """Say whether all weights are those of linear layers: others fill a GPU alone, or normalise over a batch."""
    own = [module for module in net.modules() if any(True for _ in module.parameters(recurse=False))]
    has_buffers = any(True for _ in net.buffers())
    return not has_buffers and all(isinstance(module, nn.Linear | BayesLinear | Gaussian) for module in own)


def tensors_of(method: Method) -> list[Tensor]:
    """Return everything that a step reads or changes: the net's tensors, and the optimiser's."""
    return [tensor.detach() for tensor in _held_by(method)]


def _held_by(method: Method) -> list[Tensor]:
    state, groups = method.optimizer.state, method.optimizer.param_groups
    kept = [state.get(p, {}) for group in groups for p in group["params"]]
    return [*method.net.parameters(), *(v for each in kept for _, v in sorted(each.items()) if isinstance(v, Tensor))]


class Stack:
    """The methods of several runs, all at the same task."""

    def __init__(self, methods: Sequence[Method], example: Tensor) -> None:
        first = methods[0]
        self.methods, self.generators = list(methods), [method.generator for method in methods]
        self.one: Method = copy.deepcopy(first, {id(first.generator): first.generator})
        self.rates = torch.zeros(len(methods), device=example.device)
        self._rates: list[float] = []
        for group in self.one.optimizer.param_groups:
            group["lr"] = self.rates
        targets = _held_by(self.one)
        for target, *each in zip(targets, *map(tensors_of, methods), strict=True):
            target.data = torch.stack(each)
        self.parts = [[tensor.detach()[run] for tensor in targets] for run in range(len(methods))]
        self.one.stack_like(first, example)

    def take_rates(self) -> None:
        """Learn at the present rate of each method."""
        rates = [method.optimizer.param_groups[0]["lr"] for method in self.methods]
        if rates != self._rates:
            self._rates = rates
            self.rates.copy_(torch.tensor(rates))

    @torch.no_grad()
    def hand_over(self, run: int) -> None:
        """Give a method its state."""
        torch._foreach_copy_(tensors_of(self.methods[run]), self.parts[run])

    def learn(self, x: Tensor, y: Tensor, seeds: Tensor) -> Tensor:
        """Learn a batch of each run, one after the other in ``x`` and ``y``; return the mean NLL of each.

        ``seeds`` [draws, runs] are those of the noise.
        """
        one, runs = self.one, len(self.methods)
        one.net.train()
        one.optimizer.zero_grad()
        nlls = one.add_gradients_of_runs(x.unflatten(0, (runs, -1)), y.unflatten(0, (runs, -1)), seeds)
        one.step_of_runs(self.rates)
        return nlls

    @torch.no_grad()
    def held_out_losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL of each run's held-out examples, [runs, rows, ...]."""
        self.one.net.eval()
        return self.one.losses_of_runs(x, y)


class _Again(NamedTuple):
    """Work that cannot be captured, to be done again as it is."""

    replay: Callable[[], None]


class StackedSteps(CapturedSteps):
    """The steps of several runs as one: a batch of it holds a batch of each.

    All seeds of an epoch are drawn when it begins; a run's generator is where it would be alone when it gets its state.
    """

    def __init__(
        self,
        stack: Stack,
        inputs: Sequence[Labelled],
        batch_size: int,
        held_out: Sequence[Labelled] = (),
        is_warm: bool = False,
    ) -> None:
        x, y = (torch.cat(parts) for parts in zip(*inputs, strict=True))
        self.stack, self.runs, self.size, self.each = stack, len(inputs), len(inputs[0][1]), batch_size
        super().__init__(stack.one, x, y, self.runs * batch_size)
        self.losses = torch.zeros(len(self.losses), self.runs, device=y.device)
        self.draws, self.first = stack.one.seeds_per_step, 0
        self.seeds = torch.zeros(len(self.losses), self.draws, self.runs, dtype=torch.int64, device=y.device)
        self.states: list[Tensor] = []
        self.is_warm = is_warm
        self.is_tried = False
        """Whether steps have been taken."""
        self.held_out = tuple(torch.stack(parts) for parts in zip(*held_out, strict=True))
        """Of all runs, [runs, rows, ...], where each has as many."""
        self.held_out_losses = torch.zeros(self.runs, dtype=torch.float64, device=y.device)
        self.judging: Recorded | None = None

    @property
    def generators(self) -> list[torch.Generator]:
        """None: a step finds its seeds drawn."""
        return []

    def begin_all(self, orders: Sequence[Tensor], batch: int) -> None:
        """Get ready for an epoch of every run, each in its own order."""
        self.stack.take_rates()
        mine = torch.stack([order + run * self.size for run, order in enumerate(orders)])
        whole = self.size // self.each * self.each
        batches = mine[:, :whole].unflatten(1, (-1, self.each)).transpose(0, 1)
        self.begin(torch.cat([batches.flatten(), mine[:, whole:].flatten()]), batch)
        self.first, self.states = batch, [generator.get_state() for generator in self.stack.generators]
        if self.draws:
            left = self.seeds[batch:]
            left.copy_(seeds_ahead(self.stack.generators, left.shape[0] * self.draws, left.device).view_as(left))

    def _step(self, rows: int) -> None:
        x, y = batches.take(self.x, self.y, self.order, self.turn, self.batch_size, rows)
        seeds = self.seeds.index_select(0, self.turn)[0]
        batches.note(self.stack.learn(x, y, seeds), self.losses, self.turn)

    def judge(self) -> None:
        """Find the held-out losses of all runs, once the steps are warm as a graph."""
        if self.held_out and self.is_warm and self.judging is None:
            try:
                self.judging = self._record(self._judge)
            except RuntimeError:
                self.judging = _Again(self._judge)
        if self.judging is not None:
            self.judging.replay()
        elif self.held_out:
            self._judge()

    def _judge(self) -> None:
        x, y = self.held_out
        rows = max(1, BYTES // (4 * x[0, 0].numel() * self.runs))
        parts = zip(x.split(rows, 1), y.split(rows, 1), strict=True)
        losses = [self.stack.held_out_losses(a, b).double() * b.shape[1] for a, b in parts]
        self.held_out_losses.copy_(torch.stack(losses).sum(0) / y.shape[1])

    def hand_over(self, run: int, first: int, end: int) -> list[float]:
        """Give a run its state after batch ``end``, where the steps must be; return its losses from ``first`` on."""
        self.stack.hand_over(run)
        if self.draws:
            move_on(self.stack.generators[run], self.states[run], self.draws * (end - self.first))
        found: list[float] = self.losses[first:end, run].tolist()
        return found
