"""Finding out how several weight samples may travel through a net whose forward nobody has read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ucb.bayes.passes import Pass, run

Way = Literal["shared", "expanded", "alone"]
"""How samples travel.

``shared``: the input stays B rows until the first Bayesian layer multiplies them, which saves most of its work.
``expanded``: B*S rows from the start, for a net that adds its input to a later layer's output.
``alone``: one by one, for a net that reads weights directly or folds another axis into the batch.
"""

_known: WeakKeyDictionary[nn.Module, dict[tuple[str, int], Way]] = WeakKeyDictionary()


def way_to_travel(net: nn.Module, x: Tensor, p: Pass) -> Way:
    """Say how the samples of a pass like ``p`` may travel through ``net``.

    No rule tells the ways apart, so they are tried, once for each net and number of samples. An estimator that puts
    noise on activations is tried too: it refuses a net whose rows are not its examples.
    """
    known, key = _known.setdefault(net, {}), (p.estimator, p.samples)
    if len(x) == 0 or (p.estimator == "weights" and p.samples == 1):
        return "shared"
    if key not in known:
        with torch.no_grad(), _untouched(net):
            ways = [_try_ways(net, rows, p) for rows in _probes(x)]
        known[key] = next(way for way in ("alone", "expanded", "shared") if way in ways)
    return known[key]


def travel_like(net: nn.Module, other: nn.Module) -> None:
    """Let samples travel through ``net`` as they do through ``other``, which computes the same."""
    _known[net] = dict(_known.get(other, {}))


def forget(net: nn.Module) -> bool:
    """Forget what is known of a net, which may have changed; say whether anything was."""
    return bool(_known.pop(net, None))


def _probes(x: Tensor) -> list[Tensor]:
    """Return inputs of two different lengths: an axis that is as long as one batch is not as long as the other.

    One row alone would broadcast, and hide a mismatch.
    """
    least = max(2, len(x))
    return [x[torch.arange(rows, device=x.device) % len(x)] for rows in (least, least + 1)]


def _try_ways(net: nn.Module, x: Tensor, like: Pass) -> Way:
    generator = torch.Generator(x.device).manual_seed(0)
    if like.estimator != "weights":
        run(net, x, Pass(like.estimator, len(x), 1, generator))
    if like.samples == 1:
        return "shared"
    p = Pass("weights", len(x), like.samples, generator)
    try:
        expanded = run(net, x, p, shared=False)
    except (RuntimeError, ValueError):
        run(net, x, Pass("weights", len(x), 1, generator))  # if this fails too, the input is wrong and not the way
        return "alone"
    try:
        shared = run(net, x, replace(p, perturbed=set()), shared=True)
    except (RuntimeError, ValueError):
        return "expanded"
    same = shared.shape == expanded.shape and torch.allclose(shared, expanded, rtol=1e-3, atol=1e-4)
    return "shared" if same else "expanded"


@contextmanager
def _untouched(net: nn.Module) -> Iterator[None]:
    """Put the net into eval mode for the block; afterwards mode, buffers and random states are as before."""
    training = [module for module in net.modules() if module.training]
    buffers = {buffer: buffer.clone() for buffer in net.buffers()}
    devices = {p.device for p in net.parameters() if p.is_cuda}
    net.eval()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            for module in training:
                module.training = True
            for buffer, value in buffers.items():
                buffer.copy_(value)
