"""Jobs carried out, each in a folder of its own: config, log, checkpoint and result; what was cut goes on there.

On a GPU several runs learn side by side: each has a thread and a stream of its own, and they share the chip.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import nn

import ucb
from ucb.engine.config import Job, field_types
from ucb.engine.loop import InterruptedRunError, Run
from ucb.engine.result import find_company, result_of
from ucb.engine.training import set_precision
from ucb.observer import Observer
from ucb.storage import HeldError, hold_lock, read_object, rename_old_keys, write_atomically


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Start processes that never hear Ctrl-C; this one hears it when they are started, and ends or stops them."""
    # A helper of Python's own is started with the first process, and older versions unblock the signal after that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


Result = TypeVar("Result")


def find_side_by_side_obstacle(run: Run, others: Sequence[Run] = ()) -> str | None:
    """Say why a run cannot learn beside others, and beside these, with the same result, or None."""
    if run.device.type != "cuda":
        return "a CPU's cores are busy with one"
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in run.method.net.modules()):
        return "dropout draws from PyTorch's one generator"
    if others and run.training.precision != others[0].training.precision:
        return f"how PyTorch multiplies is one setting, and others beside it have {others[0].training.precision}"
    return None


def run_side_by_side(runs: Sequence[Run], work: Callable[[Run], Result]) -> list[Result]:
    """Do ``work`` for every run, all at once. A run that fails does not stop the others; its error is raised last."""
    # How PyTorch multiplies is one setting for the whole process: it must last until all are done.
    with (
        set_precision(runs[0].training.precision, runs[0].device),
        ThreadPoolExecutor(len(runs), thread_name_prefix="ucb-run") as pool,
    ):
        waiting = [pool.submit(work, run) for run in runs]
    return [done.result() for done in waiting]


CONFIG, RESULT, LOCK = "config.json", "result.json", "lock"

Found = dict[str, Any]
"""A run's result."""


class PlannedRun(NamedTuple):
    """A job, where it happens, and who watches it."""

    job: Job
    folder: Path
    observer: Observer | None = None

    @property
    def is_done(self) -> bool:
        """Whether the folder holds its result."""
        return (self.folder / RESULT).is_file()


def start(job: Job, folder: Path, observer: Observer | None = None) -> Found:
    """Run a job in a new folder; return its result."""
    refuse_folder(folder)
    return _run_alone(PlannedRun(job, folder, observer))


def resume(folder: Path, observer: Observer | None = None, method: str | None = None) -> Found:
    """Go on with the job in ``folder``; if it is done, return its result. A class of another's must be named again."""
    return _run_alone(PlannedRun(read_job(folder, method), folder, observer))


def carry_out_all(planned_runs: Sequence[PlannedRun]) -> list[Found | Exception]:
    """Start jobs, or go on with those that were cut: side by side where that at most rounds differently, else in turn.

    One that fails does not stop the others; its error takes the place of its result. Only an interruption is raised.
    """
    found = dict[Path, Found | Exception]()
    together, alone = list[PreparedRun](), list[tuple[str, PlannedRun]]()
    for planned in planned_runs:
        ready = _attempt(_prepare, planned)
        if isinstance(ready, Exception):
            found[planned.folder] = ready
        elif ready is None:
            alone.append(("", planned))
        elif obstacle := find_side_by_side_obstacle(ready.run, [each.run for each in together]):
            alone.append((obstacle, ready.planned))
        else:
            together.append(ready)
        del ready  # ``together`` alone holds on to runs
    found |= _run_side_by_side(together)
    together.clear()  # what they hold on the GPU is no memory of the runs that come now
    said = {""}
    for obstacle, planned in alone:
        note = None if obstacle in said else f"one run after the other: {obstacle}"
        said.add(obstacle)
        found[planned.folder] = _attempt(_run_alone, planned, note)
    return [found[planned.folder] for planned in planned_runs]


class PreparedRun(NamedTuple):
    """A planned run, the run itself, and whether it is new: then its folder must still be so when it begins."""

    run: Run
    planned: PlannedRun
    is_new: bool


def _prepare(planned: PlannedRun) -> PreparedRun | None:
    """Return a planned run as its folder has it, if that holds it already, with its run; None if it is done."""
    if planned.is_done:
        return None
    is_new = not (planned.folder / CONFIG).is_file()
    if is_new:
        refuse_folder(planned.folder)
    else:
        planned = planned._replace(job=read_job(planned.folder, planned.job.method))
    return PreparedRun(planned.job.run(planned.folder, planned.observer), planned, is_new)


def _run_side_by_side(planned_runs: Sequence[PreparedRun]) -> dict[Path, Found | Exception]:
    """Carry out runs at the same time."""
    found, held = dict[Path, Found | Exception](), dict[Run, PlannedRun]()
    with ExitStack() as folders:
        for run, planned, is_new in planned_runs:
            refusal = _attempt(folders.enter_context, _hold_folder(planned, is_new))
            if isinstance(refusal, Exception):
                found[planned.folder] = refusal
            elif planned.is_done:  # another process was faster
                found[planned.folder] = _attempt(_read_result, planned.folder)
            else:
                held[run] = planned
        if held:
            with stop_on_interrupt(list(held)):
                others = len(held) - 1
                outcomes = run_side_by_side(list(held), lambda run: _attempt(_carry_out, run, held[run], others))
            found |= zip((planned.folder for planned in held.values()), outcomes, strict=True)
    return found


def _run_alone(planned: PlannedRun, note: str | None = None) -> Found:
    """Carry out a planned run by itself; its observer gets the ``note`` first."""
    with ExitStack() as held:
        is_new = not (planned.folder / CONFIG).is_file()
        if not is_new and not planned.is_done:
            held.enter_context(_hold_folder(planned, is_new))
        if planned.is_done:
            return _read_result(planned.folder)
        run = planned.job.run(planned.folder, planned.observer)
        if is_new:  # a job that cannot be run leaves no folder behind
            held.enter_context(_hold_folder(planned, is_new))
        held.enter_context(stop_on_interrupt([run]))
        if note is not None:
            run.observer.noted(note)
        return _carry_out(run, planned)


def _read_result(folder: Path) -> Found:
    """Return the result in the folder of a run that is done."""
    return read_object(folder / RESULT, "seed", "acc", "bwt", "config")  # no command can do without these


def _carry_out(run: Run, planned: PlannedRun, beside: int = 0) -> Found:
    """Return the result of a run that learns with ``beside`` others at the same time."""
    try:
        company = find_company(run, beside, resumed=run.resume())
        run.learn()
        result = result_of(run, dataclasses.asdict(planned.job), company)
        write_atomically(planned.folder / RESULT, (json.dumps(result, indent=1) + "\n").encode())
    except FileNotFoundError:
        if planned.folder.is_dir():
            raise
        raise RuntimeError(f"{planned.folder} was removed while its run went on: what it learnt is lost") from None
    return result


def _attempt(work: Callable[..., Result], *inputs: Any) -> Result | Exception:
    """Return what comes of some work, or its error; an interruption is none of its own."""
    try:
        return work(*inputs)
    except InterruptedRunError:
        raise
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold the run, with its net and its data
        return error


def read_job(folder: Path, method: str | None = None) -> Job:
    """Return the job whose run is in ``folder``, and learns with ``method`` if that is given.

    The folder may come from somebody else, and what it names as ``package.module:Class`` would be imported. So this is
    refused unless the user has named the same ``method``.
    """
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no run: there is no {CONFIG} in it")
    values = rename_old_keys(read_object(folder / CONFIG))
    known = field_types(Job)
    differs = [f"{name} is unknown" for name in values if name not in known]
    differs += [f"{name} is missing" for name in ("benchmark", "method") if name not in values]
    if differs:
        raise ValueError(
            f"{folder / CONFIG} does not fit this version of ucb ({ucb.__version__}): {', '.join(differs)}"
        )
    job = Job(**values)
    if method is None and ":" in job.method:
        raise ValueError(
            f"the run in {folder} learns with {job.method}, whose code would be imported: if you trust it, add "
            f"--method {job.method}"
        )
    if method not in (None, job.method):
        raise ValueError(f"the run in {folder} learns with {job.method}, not with {method}")
    return job


def refuse_folder(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose another folder")
    if folder.exists() and any(path.name != LOCK and path.suffix != ".part" for path in folder.iterdir()):
        what = "holds a run already: resume it" if (folder / CONFIG).exists() else "holds something else: clear it"
        raise FileExistsError(f"{folder} {what}, or choose another folder")


@contextmanager
def _hold_folder(planned: PlannedRun, is_new: bool) -> Iterator[None]:
    """Hold a run's folder for this process alone, and make it if it is new; others may have been faster."""
    folder = planned.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the folder {folder} cannot be made: {error.strerror}") from None
    with ExitStack() as lock:
        try:
            lock.enter_context(hold_lock(folder / LOCK))
        except HeldError:
            raise FileExistsError(f"another process is running in {folder}") from None
        if is_new:
            refuse_folder(folder)
            config = json.dumps(dataclasses.asdict(planned.job), indent=1)
            write_atomically(folder / CONFIG, config.encode())
        yield


@contextmanager
def stop_on_interrupt(runs: Sequence[Run]) -> Iterator[None]:
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
