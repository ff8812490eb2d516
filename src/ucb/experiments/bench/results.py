"""What one training step costs, beside its floors: on one CPU thread, and on a GPU as a CUDA graph.

On a GPU each estimator is timed beside its floors, as it is written, and without our kernels. Everything but the
capture works on a CPU too, where tests run it. Steps of other libraries may be timed in turns with ours. The figures
become tables: medians, their ratios to other rows, and bars, which a figure may not exceed.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucb import kernels
from ucb.bayes import Estimator, Normal, Prior
from ucb.engine.result import versions
from ucb.engine.training import Precision
from ucb.experiments.bench import steps
from ucb.experiments.bench.steps import NETS, MLPSizes, ResNetSizes, bayesian_step, mixture, ordinary_step
from ucb.experiments.bench.timing import Contender, Measured, Work, describe_machine, measure, one_thread
from ucb.kernels.triton import launch


@dataclass(frozen=True)
class SpeedBar:
    """A row's most milliseconds or, with ``of``, its most multiple of another row's."""

    row: str
    limit: float
    of: str | None = None
    said: str = ""
    """The limit in words, as short as a table's cell."""

    def judge(self, medians: Mapping[str, float]) -> dict[str, Any] | None:
        """Return how the row stands to its bar; None where it was not measured."""
        if self.row not in medians or (self.of is not None and self.of not in medians):
            return None
        value = medians[self.row] / (1.0 if self.of is None else medians[self.of])
        return judge_limit(self.row, value, self.limit, self.said, self.of)


def judge_limit(row: str, value: float, limit: float, said: str, of: str | None = None) -> dict[str, Any]:
    """Return a bar, the figure that stands to it, and whether it holds."""
    return {"row": row, "of": of, "limit": limit, "said": said, "value": value, "holds": value <= limit}


def describe_verdict(bar: Mapping[str, Any]) -> str:
    """Say a bar and whether it holds."""
    return f"{bar['said']}: {'held' if bar['holds'] else 'MISSED'}"


TimingTable = dict[str, Any]
"""``rows`` by name with the milliseconds of every repeat, their median and its ratio ``of`` others; ``bars``."""
RIVALS = ("blitz", "torchbnn")
"""Other libraries whose rows, where they were measured, the rows of a CPU's table are divided by."""
FLOOR = "1 pass of one deterministic net"
Cells = tuple[list[str], list[list[str]]]
Rivals = Callable[[MLPSizes, Tensor, Tensor], Mapping[str, Callable[[], Work]]]
"""Builds the steps of other libraries on a batch, by the names of their rows."""
CPU = torch.device("cpu")
MEMORY_BAR = 6.0
"""Times mu and rho."""
SECONDS = 0.25
"""How long a contender's turn lasts on a GPU."""
ONE_NET, ENGINE = "1 deterministic net", "ord-ft through the engine"
CONVOLUTIONS = "its convolutions alone"
ESTIMATORS: tuple[Estimator, ...] = ("weights", "local", "flipout")
PRECISIONS: tuple[Precision, ...] = ("tf32", "bf16")
MLP_BARS = (
    SpeedBar("weights", 0.30, said="0.30 ms"),
    SpeedBar("local", 0.15, said="0.15 ms"),
    SpeedBar(ENGINE, 1.3, ONE_NET, said="1.3 x 1 net"),
)
RESNET_BARS = (SpeedBar("weights", 1.6, CONVOLUTIONS, said="1.6 x its convolutions"),)


def measure_nets(
    names: Iterable[str], repeats: int, device: torch.device, rivals: Rivals | None = None
) -> dict[str, Any]:
    """Measure these nets on a GPU, or the MLP on one CPU thread, and return everything."""
    if device.type == "cuda":
        return gpu_result({name: NETS[name] for name in names}, Timing(repeats, device), rivals)
    mlp = NETS["mlp"]
    assert isinstance(mlp, MLPSizes)
    return cpu_result(repeats, mlp, rivals)


@dataclass(frozen=True)
class Timing:
    """How contenders are timed, and where."""

    repeats: int
    device: torch.device
    seconds: float = SECONDS


def cpu_result(repeats: int, sizes: MLPSizes, rivals: Rivals | None = None) -> dict[str, Any]:
    """Measure on one CPU thread, and return everything."""
    with one_thread():
        torch.manual_seed(0)
        x, y = sizes.batch_on(CPU)
        measured = measure(cpu_contenders(sizes, x, y, rivals), repeats, CPU)
        memory = peak_memory(sizes)
    return {
        "title": f"{sizes.title}, one thread",
        "ms": measured.ms,
        "left_out": measured.left_out,
        "memory": memory,
        "bars": [judge_limit("peak memory of weights", memory, MEMORY_BAR, "<= 6 times mu and rho")],
        "kernels": kernels.status(),
        "machine": describe_machine(CPU),
        "versions": versions(CPU),
        "repeats": repeats,
    }


def cpu_contenders(sizes: MLPSizes, x: Tensor, y: Tensor, rivals: Rivals | None = None) -> dict[str, Contender]:
    """Return everything that is timed, by the name of its row."""

    def ours(estimator: Estimator, prior: Prior, prior_samples: int) -> Contender:
        return Contender(lambda: bayesian_step(sizes.net(), x, y, sizes, estimator, prior, prior_samples), "float32")

    def ordinary(passes: int) -> Contender:
        return Contender(lambda: Work(ordinary_step(sizes.net(), x, y, passes)), "float32")

    made = rivals(sizes, x, y) if rivals else {}
    others = {name: Contender(build, "float32", foreign=True) for name, build in made.items()}
    return {
        "ucb weights, mixture prior": ours("weights", mixture(), sizes.samples),
        "ucb weights, Gaussian prior": ours("weights", Normal(steps.PRIOR_SIGMA), 1),
        "ucb local, mixture prior (1 prior sample)": ours("local", mixture(), 1),
        "ucb local, Gaussian prior": ours("local", Normal(steps.PRIOR_SIGMA), 1),
        "ucb flipout, mixture prior (1 prior sample)": ours("flipout", mixture(), 1),
        **others,
        f"{sizes.samples} passes of one deterministic net": ordinary(sizes.samples),
        FLOOR: ordinary(1),
    }


def peak_memory(sizes: MLPSizes) -> float:
    """Return the most memory that tensors hold during ``weights`` training, in sizes of mu and rho together.

    Every allocation counts: the parameters, their gradients, a rate for every weight, buffers and activations.
    """
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


def gpu_result(
    nets: Mapping[str, MLPSizes | ResNetSizes], timing: Timing, rivals: Rivals | None = None
) -> dict[str, Any]:
    """Measure the nets on a GPU, and return everything."""
    torch.manual_seed(0)
    tables = {}
    for name, sizes in nets.items():
        if isinstance(sizes, MLPSizes):
            tables[name] = measure_mlp(sizes, timing, rivals)
        else:
            tables[name] = measure_resnet(sizes, timing)
    return {
        "nets": tables,
        "kernels": launch.status(),
        "machine": describe_machine(timing.device),
        "versions": versions(timing.device),
        "repeats": timing.repeats,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def measure_mlp(sizes: MLPSizes, timing: Timing, rivals: Rivals | None = None) -> TimingTable:
    """Measure the MLP."""
    x, y = sizes.batch_on(timing.device)
    engine_steps: dict[str, steps.EngineStep] = {}

    def ours(estimator: Estimator) -> Work:
        prior_samples = sizes.samples if estimator == "weights" else 1
        return bayesian_step(sizes.net(), x, y, sizes, estimator, mixture(), prior_samples)

    def engine(name: str) -> Work:
        engine_steps[name] = steps.EngineStep(sizes, "ord-ft", timing.device)
        return Work(engine_steps[name])

    def nets(count: int) -> Work:
        return Work(steps.OrdinaryNets(sizes, count, x, y))

    ten_nets = f"{sizes.samples} deterministic nets"
    found: dict[str, Contender] = {}
    for precision in PRECISIONS:
        for name, count in (ONE_NET, 1), (ten_nets, sizes.samples):
            found[row_name(name, precision)] = Contender(partial(nets, count), precision, captured=True)
        name = row_name(ENGINE, precision)
        found[name] = Contender(partial(engine, name), precision)  # it captures its step itself
        for estimator in ESTIMATORS:
            found[row_name(estimator, precision)] = Contender(partial(ours, estimator), precision, captured=True)
    for estimator in ESTIMATORS:
        found[f"{estimator}, eager"] = Contender(partial(ours, estimator))
        found[f"{estimator}, without kernels"] = Contender(partial(ours, estimator), captured=True, kernels=False)
    for name, build in (rivals(sizes, x, y) if rivals else {}).items():
        found[f"{name}, eager"] = Contender(build, foreign=True)
    measured = measure(found, timing.repeats, timing.device, timing.seconds)
    for name, step in engine_steps.items():
        if step.why_eager is not None:
            measured.notes[name] = f"not captured as a CUDA graph: {step.why_eager}"
    compared = {"1 net": floors_for(found, ONE_NET), f"{sizes.samples} nets": floors_for(found, ten_nets)}
    return tabulate(measured, sizes.title, compared, MLP_BARS)


def measure_resnet(sizes: ResNetSizes, timing: Timing) -> TimingTable:
    """Measure ResNet18."""
    device, rows = timing.device, sizes.samples * sizes.batch
    (x, y), (many, many_y) = sizes.batch_on(device), sizes.batch_on(device, rows)

    def ours() -> Work:
        return bayesian_step(sizes.net(), x, y, sizes, "weights", mixture(), sizes.samples)

    def convolutions(precision: Precision) -> Work:
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return Work(steps.ConvolutionsAlone(sizes.net().to(device), x, sizes.samples, dtype))

    def ordinary() -> Work:
        return Work(ordinary_step(sizes.net(), many, many_y))

    images = f"1 deterministic net on {rows} images"
    found: dict[str, Contender] = {}
    for precision in PRECISIONS:
        builders: dict[str, Callable[[], Work]]
        builders = {CONVOLUTIONS: partial(convolutions, precision), images: ordinary, "weights": ours}
        for name, build in builders.items():
            found[row_name(name, precision)] = Contender(build, precision, captured=True)
    measured = measure(found, timing.repeats, device, timing.seconds)
    compared = {"convolutions": floors_for(found, CONVOLUTIONS), f"{rows} images": floors_for(found, images)}
    return tabulate(measured, sizes.title, compared, RESNET_BARS)


def row_name(name: str, precision: Precision) -> str:
    """Return a row's name: tf32, the engine's own precision, goes without saying."""
    return name if precision == "tf32" else f"{name}, {precision}"


def floors_for(contenders: Mapping[str, Contender], floor: str) -> dict[str, str]:
    """Return, for each row, the floor of its own precision."""
    return {name: row_name(floor, contender.precision) for name, contender in contenders.items()}


def tabulate(
    measured: Measured, title: str, compared: Mapping[str, Mapping[str, str]], bars: Sequence[SpeedBar] = ()
) -> TimingTable:
    """Return the table of what was measured; ``compared`` says by column, for each row, which row it is divided by."""
    medians = {name: statistics.median(ms) for name, ms in measured.ms.items()}
    rows = {}
    for name, median in medians.items():
        others = {column: row_for.get(name) for column, row_for in compared.items()}
        of = {column: median / medians[other] if other in medians else None for column, other in others.items()}
        rows[name] = {"ms": measured.ms[name], "median": median, "of": of}
    found = [judgement for bar in bars if (judgement := bar.judge(medians)) is not None]
    return {"title": title, "rows": rows, "bars": found, "notes": measured.notes, "left_out": measured.left_out}


def cells(group: TimingTable, head: str, digits: int) -> Cells:
    """Return the table's head and rows in words."""
    columns = list(dict.fromkeys(column for row in group["rows"].values() for column in row["of"]))
    bars = {bar["row"]: describe_verdict(bar) for bar in group["bars"]}
    heads = [head, "ms", *(f"of {column}" for column in columns), *(["bar"] if bars else [])]
    rows = []
    for name, row in group["rows"].items():
        ratios = ["-" if row["of"][column] is None else f"{row['of'][column]:.2f}" for column in columns]
        rows.append([name, f"{row['median']:.{digits}f}", *ratios, *([bars.get(name, "")] if bars else [])])
    return heads, rows


def groups_of(result: Mapping[str, Any]) -> list[tuple[str, Cells]]:
    """Return title and cells of every table of a result, a CPU's or a GPU's."""
    if "nets" in result:
        return [(group["title"], cells(group, "step", 3)) for group in result["nets"].values()]
    ms = result["ms"]
    rows = {column: name for column in RIVALS for name in ms if name.startswith(column)} or {"1 pass": FLOOR}
    compared = {column: dict.fromkeys(ms, row) for column, row in rows.items()}
    return [(result.get("title", ""), cells(tabulate(Measured(ms), "", compared), "one step", 1))]


def remarks(result: Mapping[str, Any]) -> list[str]:
    """Return the lines below the tables: what it ran on, and what was special or is missing."""
    lines = [f"Kernels: {result['kernels']}. Machine: {result['machine']}."]
    if "memory" in result:
        lines.append(f"Peak memory of `weights`: {result['memory']:.2f} times mu and rho.")
    groups = (*result.get("nets", {}).values(), result)
    return lines + [f"{name}: {note}." for group in groups for name, note in group.get("notes", {}).items()]


def missing(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each contender that was left out."""
    groups = (*result.get("nets", {}).values(), result)
    return [f"left out: {name} ({why})" for group in groups for name, why in group.get("left_out", {}).items()]
