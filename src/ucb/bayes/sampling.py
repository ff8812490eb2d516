"""Running a net under weight samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ucb.bayes.checks import count, one_of
from ucb.bayes.passes import ESTIMATORS, MEAN, Estimator, Pass, drawn_on, run
from ucb.bayes.travel import WAYS, Way, forget, remember, way_to_travel


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

    The first axis of ``x`` is the batch. ``stack`` sends all samples through together (more memory, fewer and larger
    operations) or one after the other. By default they go together on a GPU and for ``local`` and ``flipout``, where
    they share the first layer's work.
    """
    outputs = [walk(net, x, p) for p in plan(x, samples, estimator, stack, generator)]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def mean_forward(net: nn.Module, x: Tensor) -> Tensor:
    """Run ``x`` through ``net`` with every weight at its mean."""
    return run(net, x, MEAN)[0]


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
    """Run ``x`` through ``net`` under the pass ``p``, in the way that the net allows."""
    try:
        return _walk(net, x, p, way_to_travel(net, x, p))
    except RuntimeError:
        if p.samples == 1 or not forget(net):
            raise
    first = WAYS.index(way_to_travel(net, x, p))  # the net may have changed since it was tried
    for way in WAYS[first:]:  # or may take other layers now: some skip layers at random
        p.perturbed.clear()
        try:
            output = _walk(net, x, p, way)
        except RuntimeError:
            if way == WAYS[-1]:
                raise
            continue
        remember(net, x, p, way)
        break
    return output


def _walk(net: nn.Module, x: Tensor, p: Pass, way: Way) -> Tensor:
    if way != "alone" or p.samples == 1:
        return run(net, x, p, shared=way != "expanded")
    given = [{g: w[s] for g, w in p.drawn.items()} for s in range(p.samples)]
    alone = [Pass(p.estimator, p.rows, 1, p.generator, drawn) for drawn in given]
    outputs = torch.cat([run(net, x, q) for q in alone])
    p.drawn = drawn_on(alone)
    return outputs
