"""The step on one CPU thread, beside other libraries and passes of an ordinary net."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucb.bayes import Estimator, Normal, Prior, kernels
from ucb.bench.bars import judged
from ucb.bench.floors import ordinary_step
from ucb.bench.machine import machine
from ucb.bench.ours import PRIOR_SIGMA, bayesian_step, mixture
from ucb.bench.peers import PEERS
from ucb.bench.sizes import MLPSizes
from ucb.bench.timing import Contender, Work, measure, one_thread
from ucb.engine.report import versions

CPU = torch.device("cpu")
MEMORY_BAR = 6.0
"""Times mu and rho."""


def contenders(sizes: MLPSizes, x: Tensor, y: Tensor) -> dict[str, Contender]:
    """Return everything that is timed, by the name of its row."""

    def ours(estimator: Estimator, prior: Prior, prior_samples: int) -> Contender:
        return Contender(
            lambda: bayesian_step(sizes.net(), x, y, sizes, estimator, prior, prior_samples), precision="float32"
        )

    def ordinary(passes: int) -> Contender:
        return Contender(lambda: Work(ordinary_step(sizes.net(), x, y, passes)), precision="float32")

    found = {
        "ucb weights, mixture prior": ours("weights", mixture(), sizes.samples),
        "ucb weights, Gaussian prior": ours("weights", Normal(PRIOR_SIGMA), 1),
        "ucb local, mixture prior (1 prior sample)": ours("local", mixture(), 1),
        "ucb local, Gaussian prior": ours("local", Normal(PRIOR_SIGMA), 1),
        "ucb flipout, mixture prior (1 prior sample)": ours("flipout", mixture(), 1),
    }
    for peer in PEERS:
        found[peer.label] = Contender(partial(peer.work, sizes, x, y), precision="float32", foreign=True)
    found[f"{sizes.samples} passes of one deterministic net"] = ordinary(sizes.samples)
    found["1 pass of one deterministic net"] = ordinary(1)
    return found


def cpu_result(repeats: int, sizes: MLPSizes | None = None) -> dict[str, Any]:
    """Measure and return everything."""
    sizes = MLPSizes() if sizes is None else sizes
    with one_thread():
        torch.manual_seed(0)
        x, y = sizes.batch_on(CPU)
        measured = measure(contenders(sizes, x, y), repeats, CPU)
        memory = peak_memory(sizes)
    return {
        "title": f"{sizes.title}, one thread",
        "ms": measured.ms,
        "left_out": measured.left_out,
        "memory": memory,
        "bars": [judged("peak memory of weights", memory, MEMORY_BAR, "<= 6 times mu and rho")],
        "kernels": kernels.status(),
        "machine": machine(CPU),
        "versions": versions(CPU),
        "repeats": repeats,
    }


def peak_memory(sizes: MLPSizes | None = None) -> float:
    """Return the most memory that tensors hold during ``weights`` training, in sizes of mu and rho together.

    Every allocation counts: the parameters, their gradients, a rate for every weight, buffers and activations.
    """
    sizes = MLPSizes() if sizes is None else sizes
    x, y = sizes.batch_on(CPU)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would say on stderr that it starts and stops
    with (
        one_thread(),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile,
    ):
        step = bayesian_step(sizes.net(), x, y, sizes, "weights", mixture(), sizes.samples).step
        for _ in range(3):
            step()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["name"] == "[memory]"]
    changes = [e["args"]["Bytes"] for e in sorted(events, key=lambda e: e["ts"])]
    weights = sizes.inputs * sizes.hidden + sizes.hidden + sizes.hidden * sizes.classes + sizes.classes
    return float(max(itertools.accumulate(changes))) / (2 * 4 * weights)
