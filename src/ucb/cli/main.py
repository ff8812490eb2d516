"""The command line: thin. It parses, calls, prints, and turns errors into one sentence and an exit code.

0: done. 1: failed. 2: wrong usage. 130: interrupted, with the state saved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import ucb
from ucb import engine
from ucb.cli.watch import Lines, Live
from ucb.engine import InterruptedRunError, Job, Schedule
from ucb.engine.job import CONFIG, TRAINING_NAMES
from ucb.engine.recipes import recipe_for
from ucb.methods import known_methods
from ucb.stream import BENCHMARKS

app = typer.Typer(
    help="Continual learning with Bayesian neural networks.", no_args_is_help=True, pretty_exceptions_enable=False
)
console = Console()
errors = Console(stderr=True)
LOG = "log.txt"
_debug = False


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"ucb {ucb.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    global _debug
    _debug = debug


@app.command("run")
def run_command(
    benchmark: Annotated[str, typer.Argument(help="The stream of tasks: see `ucb list benchmarks`.")],
    method: Annotated[str, typer.Option(help="How to learn it: see `ucb list methods`.")] = "ucb",
    seed: Annotated[int, typer.Option(help="Fixes splits, orders, first weights and noise.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A new folder for result, log and checkpoint.")] = None,
    tasks: Annotated[int | None, typer.Option(help="Learn only the first N tasks.")] = None,
    epochs: Annotated[int | None, typer.Option(help="The most epochs a task may take.")] = None,
    samples: Annotated[int | None, typer.Option(help="Weight samples in a training step.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    single_head: Annotated[
        bool, typer.Option("--single-head", help="One head; the task is hidden at test time.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; may be repeated.")
    ] = None,
) -> None:
    """Learn a benchmark's tasks one after another, and say how well each is known at the end."""

    def job() -> Job:
        recipe = recipe_for(benchmark, method)
        training, settings = dict(recipe.training), dict(recipe.settings)
        for key, value in _pairs(set_ or []).items():
            (training if key in TRAINING_NAMES else settings)[key] = value
        if epochs is not None:
            training["epochs"] = epochs
        if samples is not None:
            settings["samples"] = samples
        return Job(benchmark, method, seed, tasks, single_head, training=training, settings=settings, device=device)

    folder = out or Path("runs") / f"{benchmark}-{method}-seed{seed}"
    _carry_out(lambda: _started(job(), folder), folder)


@app.command("resume")
def resume_command(folder: Annotated[Path, typer.Argument(help="The folder of a run that was cut.")]) -> None:
    """Go on with a run that was interrupted or killed; the result is the same to the last bit."""

    def resumed() -> dict[str, Any]:
        if not (folder / CONFIG).is_file():
            raise ValueError(f"{folder} holds no run: there is no {CONFIG} in it")
        job = Job(**json.loads((folder / CONFIG).read_text()))
        with _watching(job, folder) as observer:
            return engine.resume(folder, observer)

    _carry_out(resumed, folder)


@app.command("list")
def list_command(what: Annotated[str, typer.Argument(help="methods or benchmarks")]) -> None:
    """List what there is."""
    if what == "methods":
        rows = [(name, kind.summary) for name, kind in known_methods().items()]
    elif what == "benchmarks":
        rows = [(name, known.about) for name, known in BENCHMARKS.items()]
    else:
        raise typer.BadParameter(f"{what!r} cannot be listed: say methods or benchmarks")
    table = Table(box=None, show_header=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator:
            raise ValueError(f"--set takes KEY=VALUE, not {word!r}")
        pairs[key] = value
    return pairs


def _started(job: Job, folder: Path) -> dict[str, Any]:
    with _watching(job, folder) as observer:
        return engine.start(job, folder, observer)


@contextmanager
def _watching(job: Job, folder: Path) -> Iterator[Lines]:
    """Show the run as it goes: live in a terminal, in plain lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console, folder / LOG)
        return
    known = BENCHMARKS.get(job.benchmark)
    tasks = job.tasks or (known.tasks if known else 0)
    live = Live(console, folder / LOG, tasks, int(job.training.get("epochs", Schedule().epochs)))
    with live.progress:
        yield live


def _carry_out(work: Callable[[], dict[str, Any]], folder: Path) -> None:
    """Do the work and show its result; on an error, one sentence and an exit code."""
    try:
        show(work(), folder)
    except (InterruptedRunError, KeyboardInterrupt) as stop:
        where = f" ({stop})" if str(stop) else ""
        errors.print(f"interrupted{where}; go on with: ucb resume {folder}", highlight=False, markup=False)
        raise typer.Exit(130) from None
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        if _debug:
            raise
        wrong_usage = isinstance(error, ValueError | TypeError | FileExistsError | FileNotFoundError)
        errors.print(f"error: {error}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(2 if wrong_usage else 1) from None


def show(result: dict[str, Any], folder: Path) -> None:
    """Print the accuracy matrix, ACC and BWT, and where the files are."""
    tasks = result["tasks"]
    table = Table(title=f"{result['benchmark']}, {result['method']}: accuracy on each task after each task (%)")
    table.add_column("after")
    for task in tasks:
        table.add_column(task, justify="right")
    for name, row in zip(tasks, result["accuracy_matrix"], strict=True):
        table.add_row(name, *(f"{value:.2f}" for value in row))
    console.print(table)
    hidden = " (generalised: no task named)" if result["generalised_acc"] is not None else ""
    console.print(
        f"ACC {result['acc']:.2f}{hidden}   BWT {result['bwt']:+.2f}   (over n-1 tasks: {result['bwt_n1']:+.2f})   "
        f"{result['seconds']:.0f} s",
        highlight=False,
    )
    console.print(f"result, log and checkpoint are in {folder}", highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Answer the command line."""
    app(prog_name="ucb")
