"""A run as a user orders it: names and numbers in, a folder with result, log and checkpoint out."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ucb.engine import checkpoint
from ucb.engine.events import Observer
from ucb.engine.plateau import Schedule
from ucb.engine.report import result_of
from ucb.engine.run import Run, Training
from ucb.engine.settings import nearest, with_values
from ucb.methods import known_methods
from ucb.nets import mlp
from ucb.seeds import derived_seed, generator_for
from ucb.stream import benchmark

CONFIG, RESULT, LOCK = "config.json", "result.json", "lock"


@dataclass(frozen=True)
class Job:
    """Everything that decides a run's result, as plain values."""

    benchmark: str
    method: str
    seed: int = 0
    tasks: int | None = None
    single_head: bool = False
    hidden: list[int] = field(default_factory=lambda: [1200])
    training: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def run(self, folder: Path | None = None, observer: Observer | None = None) -> Run:
        """Return the run that this job describes; nothing has been learnt yet."""
        methods = known_methods()
        if self.method not in methods:
            raise ValueError(f"there is no method {self.method!r}: {nearest(self.method, methods)}")
        kind = methods[self.method]
        settings = with_values(kind.settings_type(), self.settings)
        training = _training(self.training)
        stream = benchmark(self.benchmark, self.seed, tasks=self.tasks, single_head=self.single_head)
        device = torch.device(self.device)
        first = next(iter(stream.tasks[0].test.batches(torch.arange(1), 1, torch.device("cpu"))))[0]
        with torch.random.fork_rng():
            torch.manual_seed(derived_seed("weights", self.seed))  # the same for every method
            net = mlp(first.shape[1:], stream.head_sizes, self.hidden).to(device)
        method = kind(net, settings, generator_for("noise", self.seed, device=device))
        torch.manual_seed(derived_seed("other", self.seed))
        return Run(stream, method, training, seed=self.seed, device=device, folder=folder, observer=observer)


TRAINING_NAMES = {f.name for kind in (Schedule, Training) for f in dataclasses.fields(kind)} - {"schedule"}
"""What ``Job.training`` may hold; everything else is a setting of the method."""


def _training(values: dict[str, Any]) -> Training:
    names = {f.name for f in dataclasses.fields(Schedule)}
    schedule = with_values(Schedule(), {k: v for k, v in values.items() if k in names})
    rest = with_values(Training(), {k: v for k, v in values.items() if k not in names})
    return dataclasses.replace(rest, schedule=schedule)


def start(job: Job, folder: Path, observer: Observer | None = None) -> dict[str, Any]:
    """Run a job in a new folder; return its result."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose another folder")
    if folder.exists() and any(path.name != LOCK and path.suffix != ".part" for path in folder.iterdir()):
        what = "holds a run already: resume it" if (folder / CONFIG).exists() else "holds something else: clear it"
        raise FileExistsError(f"{folder} {what}, or choose another folder")
    run = job.run(folder, observer)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        config = json.dumps(dataclasses.asdict(job), indent=1)
        checkpoint.write_atomically(folder / CONFIG, config.encode())
        return _carried_out(run, job)


def resume(folder: Path, observer: Observer | None = None) -> dict[str, Any]:
    """Go on with the job in ``folder``; if it is done, return its result."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no run: there is no {CONFIG} in it")
    with _alone_in(folder):
        if (folder / RESULT).exists():
            done: dict[str, Any] = json.loads((folder / RESULT).read_text())
            return done
        job = Job(**json.loads((folder / CONFIG).read_text()))
        return _carried_out(job.run(folder, observer), job)


def _carried_out(run: Run, job: Job) -> dict[str, Any]:
    assert run.folder is not None
    run.resume()
    with _stopping_on_interrupt(run):
        run.learn()
    result = result_of(run, dataclasses.asdict(job))
    checkpoint.write_atomically(run.folder / RESULT, (json.dumps(result, indent=1) + "\n").encode())
    return result


@contextmanager
def _stopping_on_interrupt(run: Run) -> Iterator[None]:
    """Let Ctrl-C stop the run after the batch at hand; a second one stops it at once."""

    def ask(_signal: int, _frame: object) -> None:
        if run.stopping:
            raise KeyboardInterrupt
        run.stopping = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder for this process alone."""
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileExistsError(f"another process is running in {folder}") from None
        yield
