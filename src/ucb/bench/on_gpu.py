"""The step on a GPU, as a CUDA graph: each estimator beside its floors; as it is written; and without our kernels.

Everything but the capture works on a CPU too, where tests run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ucb.bayes import Estimator
from ucb.bayes.kernels import fused
from ucb.bench.bars import Bar
from ucb.bench.convolutions import ConvolutionsAlone
from ucb.bench.floors import OrdinaryNets, ordinary_step
from ucb.bench.machine import machine
from ucb.bench.ours import EngineStep, bayesian_step, mixture
from ucb.bench.peers import PEERS
from ucb.bench.sizes import MLPSizes, ResNetSizes
from ucb.bench.table import Group, group_of
from ucb.bench.timing import Contender, Work, measure
from ucb.engine.precision import Precision
from ucb.engine.report import versions

SECONDS = 0.25
"""How long a contender's turn lasts."""

ONE_NET, ENGINE = "1 deterministic net", "ord-ft through the engine"
CONVOLUTIONS = "its convolutions alone"
ESTIMATORS: tuple[Estimator, ...] = ("weights", "local", "flipout")
PRECISIONS: tuple[Precision, ...] = ("tf32", "bf16")
MLP_BARS = (
    Bar("weights", 0.30, said="0.30 ms"),
    Bar("local", 0.15, said="0.15 ms"),
    Bar(ENGINE, 1.3, ONE_NET, said="1.3 x 1 net"),
)
RESNET_BARS = (Bar("weights", 1.6, CONVOLUTIONS, said="1.6 x its convolutions"),)


@dataclass(frozen=True)
class Timing:
    """How contenders are timed, and where."""

    repeats: int
    device: torch.device
    seconds: float = SECONDS


def gpu_result(nets: Mapping[str, MLPSizes | ResNetSizes], timing: Timing) -> dict[str, Any]:
    """Measure the nets and return everything."""
    torch.manual_seed(0)
    groups = {}
    for name, sizes in nets.items():
        groups[name] = mlp_group(sizes, timing) if isinstance(sizes, MLPSizes) else resnet_group(sizes, timing)
    return {
        "nets": groups,
        "kernels": fused.status(),
        "machine": machine(timing.device),
        "versions": versions(timing.device),
        "repeats": timing.repeats,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def mlp_group(sizes: MLPSizes, timing: Timing) -> Group:
    """Measure the MLP."""
    x, y = sizes.batch_on(timing.device)
    engine_steps: dict[str, EngineStep] = {}

    def ours(estimator: Estimator) -> Work:
        prior_samples = sizes.samples if estimator == "weights" else 1
        return bayesian_step(sizes.net(), x, y, sizes, estimator, mixture(), prior_samples)

    def engine(name: str) -> Work:
        engine_steps[name] = EngineStep(sizes, "ord-ft", timing.device)
        return Work(engine_steps[name])

    def nets(count: int) -> Work:
        return Work(OrdinaryNets(sizes, count, x, y))

    ten_nets = f"{sizes.samples} deterministic nets"
    found: dict[str, Contender] = {}
    for precision in PRECISIONS:
        for name, count in (ONE_NET, 1), (ten_nets, sizes.samples):
            found[named(name, precision)] = Contender(partial(nets, count), precision, captured=True)
        name = named(ENGINE, precision)
        found[name] = Contender(partial(engine, name), precision)  # it captures its step itself
        for estimator in ESTIMATORS:
            found[named(estimator, precision)] = Contender(partial(ours, estimator), precision, captured=True)
    for estimator in ESTIMATORS:
        found[f"{estimator}, eager"] = Contender(partial(ours, estimator))
        found[f"{estimator}, without kernels"] = Contender(partial(ours, estimator), captured=True, kernels=False)
    for peer in PEERS:
        found[f"{peer.label}, eager"] = Contender(partial(peer.work, sizes, x, y), foreign=True)
    measured = measure(found, timing.repeats, timing.device, timing.seconds)
    for name, step in engine_steps.items():
        if step.why_eager is not None:
            measured.notes[name] = f"not captured as a CUDA graph: {step.why_eager}"
    compared = {"1 net": floor_for(found, ONE_NET), f"{sizes.samples} nets": floor_for(found, ten_nets)}
    return group_of(measured, sizes.title, compared, MLP_BARS)


def resnet_group(sizes: ResNetSizes, timing: Timing) -> Group:
    """Measure ResNet18."""
    device, rows = timing.device, sizes.samples * sizes.batch
    (x, y), (many, many_y) = sizes.batch_on(device), sizes.batch_on(device, rows)

    def ours() -> Work:
        return bayesian_step(sizes.net(), x, y, sizes, "weights", mixture(), sizes.samples)

    def convolutions(precision: Precision) -> Work:
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return Work(ConvolutionsAlone(sizes.net().to(device), x, sizes.samples, dtype))

    def ordinary() -> Work:
        return Work(ordinary_step(sizes.net(), many, many_y))

    images = f"1 deterministic net on {rows} images"
    found: dict[str, Contender] = {}
    for precision in PRECISIONS:
        found[named(CONVOLUTIONS, precision)] = Contender(partial(convolutions, precision), precision, captured=True)
        found[named(images, precision)] = Contender(ordinary, precision, captured=True)
        found[named("weights", precision)] = Contender(ours, precision, captured=True)
    measured = measure(found, timing.repeats, device, timing.seconds)
    compared = {"convolutions": floor_for(found, CONVOLUTIONS), f"{rows} images": floor_for(found, images)}
    return group_of(measured, sizes.title, compared, RESNET_BARS)


def named(name: str, precision: Precision) -> str:
    """Return a row's name: tf32, the engine's own precision, goes without saying."""
    return name if precision == "tf32" else f"{name}, {precision}"


def floor_for(contenders: Mapping[str, Contender], floor: str) -> dict[str, str]:
    """Return, for each row, the floor of its own precision."""
    return {name: named(floor, contender.precision) for name, contender in contenders.items()}
