"""The training steps of a stack: an epoch of several runs, captured as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ucb.bayes.kernels import batches
from ucb.bayes.kernels.seeds import move_on, seeds_ahead
from ucb.engine.evaluate import BYTES
from ucb.engine.graph_memory import GraphMemory, Recorded
from ucb.engine.graphs import CapturedSteps
from ucb.engine.stack import Stack

Labelled = tuple[Tensor, Tensor]
"""Inputs, ready for the net, and their labels."""


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
        memory: GraphMemory,
        held_out: Sequence[Labelled] = (),
        is_warm: bool = False,
    ) -> None:
        x, y = (torch.cat(parts) for parts in zip(*inputs, strict=True))
        self.stack, self.runs, self.size, self.each = stack, len(inputs), len(inputs[0][1]), batch_size
        super().__init__(stack.one, x, y, self.runs * batch_size, memory)
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
                self.judging = self.memory.record(self._judge)
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
