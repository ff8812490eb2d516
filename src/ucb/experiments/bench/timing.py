"""Timing steps in turns, on a GPU as CUDA graphs.

Every repeat times each contender once, so that a slow spell of the machine hits all of them. On a CPU the time is that
which the process had the CPU for; on a GPU it is the wall clock's, over many steps between two waits.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from ucb import kernels
from ucb.engine.training import Precision, set_precision
from ucb.kernels.triton import launch

Step = Callable[[], object]
RunSteps = Callable[[int], None]
"""Takes so many steps."""

WARM_UP = 3
"""Steps before a graph is captured, and before anything is timed: what is made only once is there then."""

MOST_STEPS = 1000
"""Steps between two looks at the clock."""


class Work(NamedTuple):
    """A step, and the generator that it draws from, which a graph has to know."""

    step: Step
    generator: torch.Generator | None = None


@dataclass(frozen=True)
class Contender:
    """One row of the table: how its step is built and under which conditions it runs."""

    build: Callable[[], Work]
    precision: Precision = "tf32"
    captured: bool = False
    kernels: bool = True
    """Without: PyTorch does what the GPU's own kernels would do."""
    foreign: bool = False
    """Somebody else's code: where it fails its row is left out, and the others are measured."""


@dataclass
class Measured:
    """Milliseconds of every repeat by contender; what there is to say of some, and why others are missing."""

    ms: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def measure(contenders: Mapping[str, Contender], repeats: int, device: torch.device, seconds: float = 0.0) -> Measured:
    """Time all contenders in turns; each takes as many steps at a time as fit ``seconds``, but at least one."""
    measured, runs = Measured(), {}
    # As in the engine, everything runs on a stream of its own: only there can a graph be captured.
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    wait_for(device)  # for the data, which was made on another stream
    for name, contender in contenders.items():
        try:
            runs[name] = _prepare(name, contender, device, stream, measured)
            runs[name](WARM_UP)
        except Exception as error:
            is_missing = isinstance(error, ImportError)
            if not (is_missing or contender.foreign):
                raise
            runs.pop(name, None)
            measured.left_out[name] = str(error) if is_missing else f"it fails: {_first_line(error)}"
    calls = dict.fromkeys(runs, 1)
    if seconds:
        in_turn = {name: round(1000 * seconds / milliseconds(run, 1, device)) for name, run in runs.items()}
        calls = {name: min(MOST_STEPS, max(1, number)) for name, number in in_turn.items()}
    measured.ms = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            measured.ms[name].append(milliseconds(run, calls[name], device))
    return measured


def milliseconds(run: RunSteps, calls: int, device: torch.device) -> float:
    """Return the time of one step, from so many of them."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    wait_for(device)
    start = clock()
    run(calls)
    wait_for(device)
    return 1000 * (clock() - start) / calls


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def capture(work: Work, device: torch.device) -> Step:
    """Return the step as a CUDA graph, captured on the current stream, which must not be the default one.

    On a CPU it is the step itself.
    """
    if device.type != "cuda":
        return work.step
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    wait_for(device)
    for _ in range(WARM_UP):
        work.step()
    wait_for(device)
    if work.generator is not None:
        graph.register_generator_state(work.generator)
    with torch.cuda.graph(graph, stream=stream):
        work.step()

    def replay(_: Work = work) -> None:  # it holds on to the work, whose tensors the graph goes on using
        graph.replay()

    return replay


@contextmanager
def conditions(
    precision: Precision, with_kernels: bool, device: torch.device, stream: torch.cuda.Stream | None
) -> Iterator[None]:
    """Work in this precision, with or without the GPU's own kernels, on this stream, for as long as the block lasts."""
    on_stream = nullcontext() if stream is None else torch.cuda.stream(stream)
    with on_stream, set_precision(precision, device), nullcontext() if with_kernels else without_kernels(device):
        yield


@contextmanager
def without_kernels(device: torch.device) -> Iterator[None]:
    """Let PyTorch do what the GPU's kernels do; a CPU's kernels stay as they are, since they are chosen only once."""
    kernels.status()  # chosen now, and not inside the block
    before = os.environ.get("UCB_KERNELS")
    os.environ["UCB_KERNELS"] = "off"
    try:
        if launch.available(device):
            raise RuntimeError("the GPU's kernels cannot be switched off here")
        yield
    finally:
        if before is None:
            del os.environ["UCB_KERNELS"]
        else:
            os.environ["UCB_KERNELS"] = before


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one CPU thread, for as long as the block lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _prepare(
    name: str, contender: Contender, device: torch.device, stream: torch.cuda.Stream | None, measured: Measured
) -> RunSteps:
    """Build a contender under its conditions; a step that cannot be captured runs as it is, and a note says so."""
    under = partial(conditions, contender.precision, contender.kernels, device, stream)
    with under():
        work = contender.build()
        step = work.step
        if contender.captured:
            try:
                step = capture(work, device)
            except RuntimeError as error:
                measured.notes[name] = f"not captured as a CUDA graph: {_first_line(error)}"
                step = contender.build().step  # anew: a capture that failed may leave a generator in its hands

    def run(calls: int) -> None:
        with under():
            for _ in range(calls):
                step()

    return run


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def describe_machine(device: torch.device | None = None) -> str:
    """Say in one line what this runs on: a GPU, or one thread of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    is_cpu = device is None or device.type == "cpu"
    where = f"{model}, one thread" if is_cpu else torch.cuda.get_device_name(device)
    return f"{where}, Python {platform.python_version()}, torch {torch.__version__}"
