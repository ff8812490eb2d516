"""How wide an MLP is that stores a given number of values: the paper matches methods by what their nets store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import torch

from ucb.data.streams import benchmark
from ucb.engine.job import Job, method_named
from ucb.methods.bayesian import BayesianMethod
from ucb.nets import build_net

MNIST = (1, 28, 28)
MOST = 1 << 16


def values_a_weight(method: str) -> int:
    """Return how many values a method's net stores for each weight: a Gaussian one has mu and rho."""
    return 2 if issubclass(method_named(method), BayesianMethod) else 1


def units_for(budget: int, order: Job) -> int:
    """Return the units of one hidden layer with which the order's net comes nearest to ``budget`` stored values."""
    heads = head_sizes(order.benchmark, order.tasks, order.single_head, order.apart)
    each = values_a_weight(order.method)

    def stored(units: int) -> int:
        return each * weights(units, heads)

    above = max(2, bisect_left(range(MOST), budget, lo=1, key=stored))
    return min(above - 1, above, key=lambda units: abs(stored(units) - budget))


@cache
def weights(units: int, heads: Sequence[int]) -> int:
    """Count the weights of an MLP for MNIST with one hidden layer."""
    with torch.device("meta"):  # counted, never filled
        return sum(p.numel() for p in build_net("mlp", MNIST, heads, {"hidden": [units]}).parameters())


@cache
def head_sizes(name: str, tasks: int | None, single_head: bool, apart: bool) -> tuple[int, ...]:
    """Return the outputs of every head of a benchmark's net."""
    shared = False if apart else None
    return benchmark(name, tasks=tasks, single_head=single_head, shared_outputs=shared).head_sizes
