"""A run as a user orders it: names and numbers in, a folder with result, log and checkpoint out."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import ucb
from ucb.bayes import checks
from ucb.engine import checkpoint
from ucb.engine.events import Observer
from ucb.engine.json_files import read_object
from ucb.engine.plateau import Schedule
from ucb.engine.report import company_of, result_of
from ucb.engine.run import Run, Training
from ucb.engine.settings import kinds_of, typed, with_values
from ucb.engine.side_by_side import each_side_by_side, obstacle_beside_others
from ucb.methods import Method, known_methods
from ucb.nets import build_net, net_options
from ucb.seeds import derived_seed, generator_for
from ucb.stream import Scenario, Stream, benchmark
from ucb.stream.benchmarks import find
from ucb.stream.folders import folders

FOLDERS = "folders"
CONFIG, RESULT, LOCK = "config.json", "result.json", "lock"
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
            folder=folder,
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
    methods = known_methods()
    if name not in methods:
        raise ValueError(f"there is no method {name!r}: {checks.nearest(name, methods)}")
    return methods[name]


def device_named(name: str) -> torch.device:
    """Return the device of that name, if this machine has it."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu, cuda or cuda:N, not {name!r}")
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if count == 0:
        raise ValueError(f"device {name} is not here: PyTorch finds no CUDA GPU on this machine; use cpu")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(f"device {name} is not here: the GPUs of this machine are cuda:0 to cuda:{count - 1}")
    return device


def start(job: Job, folder: Path, observer: Observer | None = None, note: str | None = None) -> dict[str, Any]:
    """Run a job in a new folder; return its result. The observer gets the ``note`` first."""
    refuse_folder(folder)
    run = job.run(folder, observer)
    with _new_folder(folder, job), stopping_on_interrupt([run]):
        if note is not None:
            run.observer.noted(note)
        return _carried_out(run, job)


def start_all(orders: Sequence[tuple[Job, Path, Observer]]) -> list[dict[str, Any]]:
    """Run several jobs, each in a new folder: side by side where no result changes by it, else one after the other."""
    for _, folder, _ in orders:
        refuse_folder(folder)
    together, alone = [], dict[Path, str]()
    for job, folder, observer in orders:
        run = job.run(folder, observer)
        obstacle = obstacle_beside_others(run)
        if obstacle is None:
            together.append((run, job, folder))
        else:
            alone[folder] = obstacle
        del run  # ``together`` alone holds on to runs
    results = dict[Path, dict[str, Any]]()
    if together:
        with ExitStack() as folders:
            for _, job, folder in together:
                folders.enter_context(_new_folder(folder, job))
            job_of = {run: job for run, job, _ in together}
            with stopping_on_interrupt(list(job_of)):
                found = each_side_by_side(list(job_of), lambda run: _carried_out(run, job_of[run], len(job_of) - 1))
        results |= zip((folder for _, _, folder in together), found, strict=True)
        together.clear()  # what they hold on the GPU is no memory of the runs that come now
        job_of.clear()
    said = set[str]()
    for job, folder, observer in orders:
        if folder in alone:
            note = None if alone[folder] in said else f"one run after the other: {alone[folder]}"
            said.add(alone[folder])
            results[folder] = start(job, folder, observer, note)
    return [results[folder] for _, folder, _ in orders]


def refuse_folder(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose another folder")
    if folder.exists() and any(path.name != LOCK and path.suffix != ".part" for path in folder.iterdir()):
        what = "holds a run already: resume it" if (folder / CONFIG).exists() else "holds something else: clear it"
        raise FileExistsError(f"{folder} {what}, or choose another folder")


@contextmanager
def _new_folder(folder: Path, job: Job) -> Iterator[None]:
    """Make a job's folder, and hold it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the folder {folder} cannot be made: {error.strerror}") from None
    with _alone_in(folder):
        config = json.dumps(dataclasses.asdict(job), indent=1)
        checkpoint.write_atomically(folder / CONFIG, config.encode())
        yield


def resume(folder: Path, observer: Observer | None = None) -> dict[str, Any]:
    """Go on with the job in ``folder``; if it is done, return its result."""
    job = job_in(folder)
    with _alone_in(folder):
        if (folder / RESULT).exists():
            return read_object(folder / RESULT)
        run = job.run(folder, observer)
        with stopping_on_interrupt([run]):
            return _carried_out(run, job)


def job_in(folder: Path) -> Job:
    """Return the job whose run is in ``folder``."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no run: there is no {CONFIG} in it")
    values = read_object(folder / CONFIG)
    known = kinds_of(Job)
    differs = [f"{name} is unknown" for name in values if name not in known]
    differs += [f"{name} is missing" for name in ("benchmark", "method") if name not in values]
    if differs:
        raise ValueError(
            f"{folder / CONFIG} does not fit this version of ucb ({ucb.__version__}): {', '.join(differs)}"
        )
    return Job(**values)


def _carried_out(run: Run, job: Job, beside: int = 0) -> dict[str, Any]:
    """Return the result of a run that learns with ``beside`` others at the same time."""
    assert run.folder is not None
    company = company_of(run, beside, resumed=run.resume())
    run.learn()
    result = result_of(run, dataclasses.asdict(job), company)
    checkpoint.write_atomically(run.folder / RESULT, (json.dumps(result, indent=1) + "\n").encode())
    return result


@contextmanager
def stopping_on_interrupt(runs: Sequence[Run]) -> Iterator[None]:
    """Let Ctrl-C stop the runs after the batch at hand; a second one stops them at once."""

    def ask(_signal: int, _frame: object) -> None:
        if runs[0].stopping:
            raise KeyboardInterrupt
        for run in runs:
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
