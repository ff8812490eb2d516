"""The commands: thin. They parse, call and print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import ucb
from ucb import engine
from ucb.cli.bench import bench_command
from ucb.cli.data import data_app
from ucb.cli.export import export_command
from ucb.cli.failing import answering, complain
from ucb.cli.learn import learn_command
from ucb.cli.model import forget_check_command, show_command
from ucb.cli.order import job_from, seeds_in
from ucb.cli.output import write_whatever_comes
from ucb.cli.predict import predict_command
from ucb.cli.report import leave_report, report_command
from ucb.cli.reproduce import reproduce_command, table_command
from ucb.cli.show import console, say, show_names, show_result, show_spread
from ucb.cli.terminal import Commands
from ucb.cli.tune import tune_command
from ucb.cli.watch import Lines, Live
from ucb.data.streams import BENCHMARKS
from ucb.engine import DivergedError, InterruptedRunError, Job, Schedule
from ucb.engine.job import FOLDERS
from ucb.engine.ordering import kind_of
from ucb.engine.orders import Order, job_in, refuse_folder
from ucb.engine.recipes import Recipe, own_recipe
from ucb.methods import known_methods
from ucb.nets import NETS

LOG = "log.txt"
app = typer.Typer(
    cls=Commands,
    help="Continual learning with Bayesian neural networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data")
app.command("learn", short_help="Learn a wave of your own data into a model file.")(learn_command)
app.command("predict", short_help="Say what inputs are, and how sure a model is of it.")(predict_command)
app.command("show", short_help="Say what a model file has learnt, and how certain it is.")(show_command)
app.command("forget-check", short_help="Measure what a model still knows of old data.")(forget_check_command)
app.command("export", short_help="Write a model's mean weights as an ONNX file.")(export_command)
app.command("tune", short_help="Choose a method's settings on held-out data.")(tune_command)
app.command("report", short_help="Write one page about runs, with charts.")(report_command)
app.command("reproduce", short_help="Run what a table of the paper still lacks.")(reproduce_command)
app.command("table", short_help="Print a table of ours beside the paper's figures.")(table_command)
app.command("bench", short_help="Time one training step beside floors and other libraries.")(bench_command)
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"ucb {ucb.__version__}", highlight=False)
        raise typer.Exit


def _benchmarks(begun: str) -> list[str]:
    """Complete the name of a benchmark."""
    return [name for name in BENCHMARKS if name.startswith(begun)]


def _methods(begun: str) -> list[str]:
    """Complete the name of a method."""
    return [name for name in known_methods() if name.startswith(begun)]


def _nets(begun: str) -> list[str]:
    """Complete the name of a net."""
    return [name for name in NETS if name.startswith(begun)]


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    write_whatever_comes()
    context.obj = debug


@app.command("run", short_help="Learn a benchmark's tasks one after another.")
def run_command(
    context: typer.Context,
    benchmark: Annotated[
        str,
        typer.Argument(
            metavar="BENCHMARK", help="The stream of tasks: see `ucb list benchmarks`.", autocompletion=_benchmarks
        ),
    ],
    method: Annotated[
        str, typer.Option(help="How to learn it: see `ucb list methods`.", autocompletion=_methods)
    ] = "ucb",
    seed: Annotated[
        int | None, typer.Option(help="Fixes splits, orders, first weights and noise.  [default: 0]")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1,2", help="Several seeds; on a GPU they learn side by side.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder for result, log and checkpoint.  [default: runs/BENCHMARK-METHOD-seedSEED]"),
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="Learn only the first N tasks.")] = None,
    epochs: Annotated[int | None, typer.Option(help="The most epochs a task may take.")] = None,
    samples: Annotated[int | None, typer.Option(help="Weight samples in a training step.")] = None,
    net: Annotated[
        str | None, typer.Option(help=f"{', '.join(NETS)}.  [default: the benchmark's]", autocompletion=_nets)
    ] = None,
    hidden: Annotated[
        list[int] | None,
        typer.Option(
            metavar="<int>", help="Units of a hidden layer of the mlp; repeat it for more layers.  [default: 1200]"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    single_head: Annotated[
        bool, typer.Option("--single-head", help="One head; the task is hidden at test time.")
    ] = False,
    apart: Annotated[
        bool, typer.Option("--apart", help="With one head: an output for each class of each task, none is shared.")
    ] = False,
    task_told: Annotated[
        bool, typer.Option("--task-told", help="With one head: the task is told, and its own outputs alone count.")
    ] = False,
    blur: Annotated[
        float | None,
        typer.Option(help="0 to 1: tasks fade into each other and share their outputs; no boundary is told."),
    ] = None,
    faces: Annotated[str | None, typer.Option(help="The faces of eight-datasets: facescrub100 or lfw100.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="With the benchmark `folders`: a folder of class folders; repeat it for each task."),
    ] = None,
    final_only: Annotated[
        bool, typer.Option("--final-only", help="Joint training: once on all tasks, not anew at each.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; may be repeated.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Learn a benchmark's tasks one after another, and say how well each is known at the end."""
    only_seed = 0 if seed is None else seed
    folder = out or Path("runs") / f"{benchmark}-{method}-seed{only_seed}"
    with answering(folder, debug or context.obj):
        if seed is not None and seeds is not None:
            raise ValueError("--seed is one and --seeds are several: leave one of them out")
        folders = [str(path.resolve()) for path in data or []]
        order = Job(
            benchmark,
            method,
            only_seed,
            tasks,
            single_head,
            blur,
            faces,
            folders,
            net,
            device=device,
            apart=apart,
            task_told=task_told,
        )
        options = {"epochs": epochs, "samples": samples, "hidden": hidden, "final_only": final_only or None}
        job = job_from(order, options, set_ or [], _own_recipe(order))
        if seeds is not None:
            _run_seeds(job, seeds_in(seeds), out, debug or context.obj)
            return
        with _watching(job, folder) as observer:
            result = engine.start(job, folder, observer)
        show_result(result, folder)
        leave_report(folder, [folder])


def _own_recipe(order: Job) -> Recipe | None:
    """Return the recipe in the user's own folder, which goes before the package's, and say that it serves."""
    own = own_recipe(kind_of(order), order.method)
    if own is None:
        return None
    say(f"settings of {own.path}, your own recipe: {own.recipe.found}")
    return own.recipe


def _run_seeds(job: Job, seeds: list[int], out: Path | None, debug: bool) -> None:
    """Run a job under several seeds, each in a folder of its own."""
    orders, watching = list[Order](), dict[Path, Lines]()
    for seed in seeds:
        folder = out / f"seed{seed}" if out else Path("runs") / f"{job.benchmark}-{job.method}-seed{seed}"
        watching[folder] = Lines(console, folder / LOG, f"seed {seed}: ")
        orders.append(Order(replace(job, seed=seed), folder, watching[folder]))
    first, *others = watching
    with answering(first, debug, *others):
        for folder in watching:
            refuse_folder(folder)
        outcomes = engine.go_on_with_all(orders)
        done, codes = dict[Path, dict[str, Any]](), list[int]()
        for order, outcome in zip(orders, outcomes, strict=True):
            if isinstance(outcome, Exception):
                codes.append(complain(outcome, order.folder, debug, f"seed {order.job.seed}: "))
                if order.folder.is_dir():  # it may have failed before it was made
                    watching[order.folder].keep(str(outcome))
            else:
                done[order.folder] = outcome
                show_result(outcome, order.folder)
        show_spread(list(done.values()))
        for home, runs in [(out, list(done))] if out and done else [(folder, [folder]) for folder in done]:
            leave_report(home, runs)
        if codes:
            raise typer.Exit(codes[0])


@app.command("resume", short_help="Go on with a run that was cut.")
def resume_command(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run that was cut.")],
    debug: Debug = False,
) -> None:
    """Go on with a run that was cut; the result is the same to the last bit (learnt with others: but for rounding)."""
    with answering(folder, debug or context.obj):
        with _watching(job_in(folder), folder) as observer:
            result = engine.resume(folder, observer)
        show_result(result, folder)
        leave_report(folder, [folder])


@app.command("list")
def list_command(
    what: Annotated[Literal["methods", "benchmarks"], typer.Argument(metavar="{methods|benchmarks}")],
) -> None:
    """List the methods or the benchmarks there are."""
    if what == "methods":
        show_names({name: kind.summary for name, kind in known_methods().items()})
    else:
        own = {FOLDERS: "your own images: --data FOLDER for each task, in it a folder for each class"}
        show_names({name: known.about for name, known in BENCHMARKS.items()} | own)


@contextmanager
def _watching(job: Job, folder: Path) -> Iterator[Lines]:
    """Show the run as it goes, live in a terminal and in plain lines elsewhere; log why it stopped early."""
    observer = _observer(job, folder / LOG)
    try:
        with observer:
            yield observer
    except (InterruptedRunError, DivergedError) as stop:
        with suppress(OSError):  # why it stopped is said in any case
            observer.keep(str(stop))
        raise


def _observer(job: Job, log: Path) -> Lines:
    if not console.is_terminal or console.is_dumb_terminal:
        return Lines(console, log)
    known = BENCHMARKS.get(job.benchmark)
    tasks = job.tasks or (known.tasks if known else max(1, len(job.data)))
    epochs: Any = job.training.get("epochs", Schedule().epochs)
    return Live(console, log, tasks, epochs)
