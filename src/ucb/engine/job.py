"""A run as a user orders it: names and numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import ucb
from ucb.bayes import checks
from ucb.data.streams import Scenario, Stream, benchmark
from ucb.data.streams.benchmarks import find
from ucb.data.streams.folders import folders
from ucb.devices import device_named
from ucb.engine.checkpoint import FolderCheckpoints
from ucb.engine.events import Observer
from ucb.engine.plateau import Schedule
from ucb.engine.run import Run
from ucb.engine.settings import kinds_of, typed, with_values
from ucb.engine.training import Training
from ucb.methods import Method, find_method
from ucb.nets import build_net, net_options
from ucb.seeds import derived_seed, generator_for

FOLDERS = "folders"
LATER = ("apart", "task_told")
"""Choices that earlier checkpoints do not name: they had none of them."""


@dataclass(frozen=True)
class Job:
    """Everything that decides a run's result, as plain values."""

    benchmark: str
    method: str
    seed: int = 0
    tasks: int | None = None
    single_head: bool = False
    apart: bool = field(default=False, kw_only=True)
    """With a single head: an output for each class of each task, also where tasks would share their outputs."""
    task_told: bool = field(default=False, kw_only=True)
    """With a single head: the task is told at test time, and its own outputs alone count."""
    blur: float | None = None
    faces: str | None = None
    data: list[str] = field(default_factory=list)
    """With the benchmark ``folders``: a folder of class folders for each task."""
    net: str | None = None
    """None is the benchmark's own choice."""
    net_options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __post_init__(self) -> None:
        kinds: dict[str, type] = {"benchmark": str, "method": str, "device": str}
        kinds |= dict.fromkeys(("net_options", "training", "settings"), dict)
        kinds |= dict.fromkeys(LATER, bool)
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {getattr(self, name)!r}")
        checks.count("seed", self.seed, least=0)
        if self.tasks is not None:
            checks.count("tasks", self.tasks)
        if self.blur is not None and not (isinstance(self.blur, int | float) and 0 <= self.blur <= 1):
            raise ValueError(f"blur must be between 0 and 1, not {self.blur!r}")
        if (self.apart or self.task_told) and not self.single_head:
            raise ValueError(
                "apart outputs, and a task told at test time, are choices for a single head: add --single-head"
            )

    def run(self, folder: Path | None = None, observer: Observer | None = None, stream: Stream | None = None) -> Run:
        """Return the run that this job describes; nothing has been learnt yet. ``stream`` stands in for its own."""
        observer = Observer() if observer is None else observer
        kind = method_named(self.method)
        settings = with_values(kind.settings_type(), self.settings)
        training = _training(self.training)
        device = device_named(self.device)
        options = typed(self.net_options, net_options(self.net_name), f"the net {self.net_name} has no option")
        stream = self.stream() if stream is None else stream
        first = next(iter(stream.tasks[0].test.batches(torch.arange(1), 1, torch.device("cpu"))))[0]
        with torch.random.fork_rng():
            torch.manual_seed(derived_seed("weights", self.seed))  # the same for every method
            net = build_net(self.net_name, first.shape[1:], stream.head_sizes, options).to(device)
        method = kind(net, settings, generator_for("noise", self.seed, device=device))
        torch.manual_seed(derived_seed("other", self.seed))
        return Run(
            stream,
            method,
            training,
            seed=self.seed,
            device=device,
            checkpoints=None if folder is None else FolderCheckpoints(folder, observer.noted),
            observer=observer,
            identity=self.identity(),
        )

    def stream(self) -> Stream:
        """Return the tasks to learn."""
        if self.benchmark == FOLDERS:
            if self.blur is not None or self.faces is not None:
                raise ValueError("folders of your own have no blur and no faces to choose: leave these out")
            scenario = Scenario("one", task_known=self.task_told) if self.single_head else Scenario()
            paths = [Path(folder) for folder in self.data]
            if self.tasks is not None and self.tasks > len(paths):
                raise ValueError(f"tasks must be between 1 and {len(paths)}, the number of folders, not {self.tasks}")
            return folders(FOLDERS, paths[: self.tasks], seed=self.seed, scenario=scenario)
        if self.data:
            raise ValueError(f"--data goes with the benchmark {FOLDERS!r}, not with {self.benchmark!r}")
        return benchmark(
            self.benchmark,
            self.seed,
            tasks=self.tasks,
            single_head=self.single_head,
            shared_outputs=False if self.apart else None,
            task_told=self.task_told,
            blur=self.blur,
            faces=self.faces,
        )

    @property
    def net_name(self) -> str:
        """The net's name."""
        return self.net or ("alexnet" if self.benchmark == FOLDERS else find(self.benchmark).net)

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint of this job must agree in: the configuration, and the version that made it."""
        values = {key: value for key, value in dataclasses.asdict(self).items() if value or key not in LATER}
        flat = {key: value for key, value in values.items() if not isinstance(value, dict)}
        return {**flat, **self.net_options, **self.training, **self.settings, "version of ucb": ucb.__version__}


TRAINING_KINDS = {n: k for n, k in (kinds_of(Schedule) | kinds_of(Training)).items() if n != "schedule"}
"""What ``Job.training`` may hold, and its types; everything else is a setting of the method."""


def _training(values: dict[str, Any]) -> Training:
    known, names = typed(values, TRAINING_KINDS, "training has no setting"), kinds_of(Schedule)
    schedule = Schedule(**{name: value for name, value in known.items() if name in names})
    return Training(schedule, **{name: value for name, value in known.items() if name not in names})


def method_named(name: str) -> type[Method]:
    """Return the method of that name; for a wrong one the nearest right ones are offered."""
    return find_method(name)
