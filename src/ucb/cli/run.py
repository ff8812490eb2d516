"""``ucb run``, ``resume``, ``report`` and ``list``: learn a benchmark, go on with a run, show its results."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table
from typer import Argument, Option

from ucb.cli.command import Debug, Device, complain, complete, explain_interrupt
from ucb.cli.terminal import console, fits, format_count, make_table, print_names, print_table, say, warn

if TYPE_CHECKING:
    from ucb.cli.watch import Lines
    from ucb.engine import Job
    from ucb.engine.config import Recipe

LOG, PAGE = "log.txt", "report.html"
MOST_NAMED = 5
LONG, SHORT = "accuracy (%) on each task after each", "accuracy (%) on each task"
complete_benchmark, complete_net = complete("ucb.data.streams", "BENCHMARKS"), complete("ucb.nets", "NETS")
complete_method = complete("ucb.methods.outside", "list_names")
STREAM = "The stream of tasks; `ucb list benchmarks` lists them."
NETWORK = "The network: mlp, alexnet, resnet18 or patches.  [default: the benchmark's]"
LEARNER = "The method that learns: a name of `ucb list methods`, or package.module:Class for a class of your own."
BenchmarkName = Annotated[str, Argument(metavar="BENCHMARK", help=STREAM, autocompletion=complete_benchmark)]
MethodName = Annotated[str, Option(help=LEARNER, autocompletion=complete_method)]
Net = Annotated[str | None, Option(help=NETWORK, autocompletion=complete_net)]
Hidden = Annotated[
    list[int] | None,
    Option(metavar="<int>", help="Units of a hidden layer of the mlp; repeat it for more.  [default: 1200]"),
]
SingleHead = Annotated[bool, Option("--single-head", help="One head (output layer) for all; the task is hidden.")]
Apart = Annotated[bool, Option("--apart", help="With --single-head: each class of each task has its own output.")]
TaskTold = Annotated[bool, Option("--task-told", help="With --single-head: the task is told; only its outputs count.")]
Blur = Annotated[float | None, Option(help="0 to 1: how far tasks fade into each other, without boundaries.")]


def run_command(
    benchmark: BenchmarkName,
    method: MethodName = "ucb",
    seed: Annotated[int | None, Option(help="The seed of data, first weights and noise.  [default: 0]")] = None,
    seeds: Annotated[str | None, Option(metavar="0,1,2", help="Several seeds: a run each, together on a GPU.")] = None,
    out: Annotated[
        Path | None, Option(help="A new folder for all files of the run.  [default: runs/BENCHMARK-METHOD-seedSEED]")
    ] = None,
    tasks: Annotated[int | None, Option(metavar="N", help="Learn only the first N tasks.")] = None,
    epochs: Annotated[int | None, Option(help="The most epochs that a task may take.")] = None,
    samples: Annotated[int | None, Option(help="How many weight samples a training step draws.")] = None,
    net: Net = None,
    hidden: Hidden = None,
    device: Device = "cpu",
    single_head: SingleHead = False,
    apart: Apart = False,
    task_told: TaskTold = False,
    blur: Blur = None,
    faces: Annotated[str | None, Option(help="The faces in eight-datasets: facescrub100 or lfw100.")] = None,
    data: Annotated[
        list[Path] | None,
        Option(metavar="FOLDER", help="With the benchmark `folders`: one task's folder of class folders; repeatable."),
    ] = None,
    final_only: Annotated[
        bool, Option("--final-only", help="Joint training: train once, after the last task.")
    ] = False,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Any other setting; repeatable.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Learn a benchmark's tasks one after another, and print how well each is known at the end.

    ACC is the mean accuracy at the end; BWT, backward transfer, is what later tasks added to it, or took away.
    """
    from ucb import engine

    if seed is not None and seeds is not None:
        raise ValueError("--seed names one seed and --seeds names several: leave one of them out")
    scenario: dict[str, Any] = {"single_head": single_head, "apart": apart, "task_told": task_told, "blur": blur}
    scenario |= {"faces": faces, "data": [str(path.resolve()) for path in data or []]}
    order = engine.Job(benchmark, method, seed or 0, tasks, net=net, device=device, **scenario)
    options = {"epochs": epochs, "samples": samples, "hidden": hidden, "final_only": final_only or None}
    job = make_job(order, options, set_ or [], _find_own_recipe(order))
    if seeds is None:
        folder = out or _default_folder(job)
        _show_run(job, folder, partial(engine.start, job, folder))
    else:
        _run_seeds([replace(job, seed=number) for number in parse_seeds(seeds)], out, debug)


def resume_command(
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder of a run that was interrupted.")],
    method: Annotated[
        str | None,
        Option(metavar="PACKAGE.MODULE:CLASS", help="Its method, if that is a class of your own: it is imported."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Go on with a run that was interrupted.

    The result is the same to the last bit; after learning side by side with other runs, it is the same up to rounding.
    A class that is no installed method is imported only if it is named here again: the folder may be another's.
    """
    from ucb import engine
    from ucb.engine.runner import read_job

    _show_run(read_job(folder, method), folder, partial(engine.resume, folder, method=method))


def report_command(
    runs: Annotated[
        list[Path], Argument(metavar="RUN", help="A result file, a run's folder, or a folder with some of these.")
    ],
    out: Annotated[Path, Option("--out", "-o", help="The page to write.")] = Path(PAGE),
    debug: Debug = False,
) -> None:
    """Write one HTML page about runs, with charts that compare their methods.

    It shows accuracies, forgetting, sigma (the standard deviation of the weights), calibration and cost.
    """
    from ucb.experiments import report

    left_out: list[Path] = []
    found = report.results_at(runs, left_out.append)
    report.write_page(found, out)
    if left_out:
        more = f" and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
        say(f"left out, as there is no result yet: {', '.join(map(str, left_out[:MOST_NAMED]))}{more}")
    say(f"{format_count(len(found), 'run', 'runs')} in {out}")


def list_command(
    what: Annotated[Literal["methods", "benchmarks"], Argument(metavar="WHAT", help="methods or benchmarks")],
) -> None:
    """List the methods, or the benchmarks, and what each of them is."""
    if what == "methods":
        from ucb.methods import known_methods
        from ucb.methods.outside import list_offers

        about, offers = {name: kind.summary for name, kind in known_methods().items()}, list_offers()
        about |= {name: f"{each.kind.summary} ({each.package})" for name, each in offers.items() if each.kind}
        print_names(about)
        for offer in offers.values():
            if offer.obstacle:
                warn(offer.obstacle)
    else:
        from ucb.data.streams import BENCHMARKS
        from ucb.engine.config import FOLDERS

        own = {FOLDERS: "your own images: --data FOLDER for each task, in it a folder for each class"}
        print_names({name: known.about for name, known in BENCHMARKS.items()} | own)


def make_job(order: Job, options: Mapping[str, Any], words: Iterable[str], recipe: Recipe | None = None) -> Job:
    """Return the job: the recipe's settings, over them those in ``words``, and over these the options that are set.

    ``order`` says what to learn, how and with which net; the settings of all three come together here. Without a
    ``recipe`` it is the package's.
    """
    from ucb.engine.config import apply_recipe, list_settings

    known = list_settings(order)
    chosen = {name: value for name, value in options.items() if value is not None}
    if strange := [f"--{name.replace('_', '-')}" for name in chosen if name not in known]:
        whose = order.net_name if strange == ["--hidden"] else order.method
        raise ValueError(f"{whose} has no {', '.join(strange)}: leave it out")
    pairs = [word.partition("=") for word in words]
    if wrong := ["".join(pair) for pair in pairs if not (pair[0] and pair[1])]:
        raise ValueError(f"--set takes KEY=VALUE, not {wrong[0]!r}")
    return apply_recipe(order, {key: value for key, _, value in pairs} | chosen, recipe)


def parse_seeds(word: str) -> list[int]:
    """Return the seeds in a word such as ``0,1,2``."""
    try:
        seeds = [int(part) for part in word.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds takes different whole numbers such as 0,1,2, not {word!r}")
    return seeds


def _default_folder(job: Job) -> Path:
    return Path("runs") / f"{job.benchmark}-{job.method_name}-seed{job.seed}"


def _find_own_recipe(order: Job) -> Recipe | None:
    """Return the recipe in the user's own folder, which goes before the package's, and say that it is used."""
    from ucb.engine.config import kind_of, own_recipe

    own = own_recipe(kind_of(order), order.method_name)
    if own is None:
        return None
    say(f"settings of {own.path}, your own recipe: {own.recipe.found}")
    return own.recipe


def _show_run(job: Job, folder: Path, work: Callable[[Lines], dict[str, Any]]) -> None:
    """Do the work of one run, show it as it goes and what came of it."""
    with _explain_resuming(job.method, folder):
        with _watch(job, folder) as observer:
            result = work(observer)
        show_result(result, folder)
        leave_report(folder, [folder])


@contextmanager
def _watch(job: Job, folder: Path) -> Iterator[Lines]:
    """Show the run as it goes, live in a terminal and in plain lines elsewhere; log why it stopped early."""
    from ucb.cli import watch
    from ucb.data.streams import BENCHMARKS
    from ucb.engine import DivergedError, InterruptedRunError, Schedule

    if watch.is_live(console):
        known = BENCHMARKS.get(job.benchmark)
        tasks = job.tasks or (known.tasks if known else max(1, len(job.data)))
        epochs: Any = job.training.get("epochs", Schedule().epochs)
        observer: Lines = watch.Live(console, folder / LOG, tasks, epochs)
    else:
        observer = watch.Lines(console, folder / LOG)
    try:
        with observer:
            yield observer
    except (InterruptedRunError, DivergedError) as stop:
        with suppress(OSError):  # why it stopped is said in any case
            observer.keep(str(stop))
        raise


def _run_seeds(jobs: list[Job], out: Path | None, debug: bool) -> None:
    """Run a job under several seeds, each in a folder of its own."""
    from ucb import engine
    from ucb.cli import watch
    from ucb.engine.runner import refuse_folder

    orders = list[engine.PlannedRun]()
    watching: dict[Path, Lines] = {}
    for job in jobs:
        folder = out / f"seed{job.seed}" if out else _default_folder(job)
        watching[folder] = watch.Lines(console, folder / LOG, f"seed {job.seed}: ")
        orders.append(engine.PlannedRun(job, folder, watching[folder]))
    with _explain_resuming(jobs[0].method, *watching):
        for folder in watching:
            refuse_folder(folder)
        done, codes = dict[Path, dict[str, Any]](), list[int]()
        for order, outcome in zip(orders, engine.carry_out_all(orders), strict=True):
            if isinstance(outcome, Exception):
                codes.append(
                    complain(_advise(outcome, order.job.method, order.folder), debug, f"seed {order.job.seed}: ")
                )
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


@contextmanager
def _explain_resuming(method: str, *folders: Path) -> Iterator[None]:
    """Say how to go on with the runs in these folders, where they are interrupted or a file cannot be written."""
    with explain_interrupt(lambda stop: _describe_interruption(stop, method, *folders)):
        try:
            yield
        except OSError as error:
            raise _advise(error, method, folders[0]) from None


def _advise(error: Exception, method: str, folder: Path) -> Exception:
    """Note on an error of the operating system how to go on with the run that it stopped."""
    if isinstance(error, OSError) and error.strerror is not None and any(folder.glob("checkpoint-*")):
        error.add_note(f"once that is mended, {describe_resuming(folder, method)}")
    return error


def _describe_interruption(stop: BaseException, method: str, *folders: Path) -> str:
    """Say where the run was interrupted, and how to go on with all that were begun."""
    from ucb.engine.runner import CONFIG, RESULT

    begun = [folder for folder in folders if (folder / CONFIG).is_file()]
    cut = [folder for folder in begun if not (folder / RESULT).is_file()] or begun
    if not cut:
        return "interrupted before the run began: nothing was saved"
    where = "" if isinstance(stop, KeyboardInterrupt) else f": {stop}; the state is saved"
    not_begun = [shlex.quote(str(folder)) for folder in folders if folder not in begun]
    rest = [f"not begun: {', '.join(not_begun)}"] if not_begun else []
    return "\n".join([f"interrupted{where}", *(describe_resuming(folder, method) for folder in cut), *rest])


def describe_resuming(folder: Path, method: str) -> str:
    """Name the command that goes on with a run; a class that is imported must be named again."""
    words = ["ucb", "resume", str(folder), *(["--method", method] if ":" in method else [])]
    return f"go on with: {shlex.join(words)}"


def show_result(result: dict[str, Any], folder: Path) -> None:
    """Print the accuracies, ACC and BWT, and where the files are."""
    title, table = next((title, table) for title, table in accuracy_tables(result) if fits(table) or title == SHORT)
    say(f"\n{result['benchmark']}, {result['method']}, seed {result['seed']}: {title}\n")
    print_table(table)
    hidden = " (generalised: no task named)" if result["generalised_acc"] is not None else ""
    figures = f"ACC {result['acc']:.2f}{hidden}"
    if result["bwt"] is not None:
        figures += f"   BWT {result['bwt']:+z.2f} (over n-1 tasks: {result['bwt_n1']:+z.2f})"
    say(f"\n{figures}   {result['seconds']:.0f} s")
    for name, acc in result.get("acc_of", {}).items():
        say(f"ACC {acc:.2f} {name}")
    say(f"result, log and checkpoint are in {folder}")


def show_spread(results: Sequence[dict[str, Any]]) -> None:
    """Print mean and standard deviation over several seeds."""
    if len(results) < 2:
        return
    figures = []
    for name, sign in ("acc", ""), ("bwt", "+z"):
        if values := [result[name] for result in results if result[name] is not None]:
            spread = f" +- {stdev(values):.2f}" if len(values) > 1 else ""
            figures.append(f"{name.upper()} {mean(values):{sign}.2f}{spread}")
    say(f"\n{len(results)} seeds: {', '.join(figures)}")


def accuracy_tables(result: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """Return title and table of the accuracy matrix, in ever narrower forms; the last has a row for each task only."""
    names, matrix = result["tasks"], result["accuracy_matrix"]
    numbers = [str(number + 1) for number in range(len(names))]
    for rows, columns, digits in (names, names, 2), (names, numbers, 2), (numbers, numbers, 2), (numbers, numbers, 1):
        yield LONG, _table(["after", *columns], rows, matrix, digits)
    pairs = [(row[-1], last) for row, last in zip(matrix, matrix[-1], strict=True)]
    yield SHORT, _table(["task", "when learnt", "at the end"], names, pairs)


def _table(heads: list[str], names: list[str], rows: Sequence[Sequence[float | None]], digits: int = 2) -> Table:
    """Return a table with a name before each row, and a dash where nothing was measured."""
    cells = [["-" if value is None else f"{value:.{digits}f}" for value in row] for row in rows]
    return make_table(heads, [[name, *row] for name, row in zip(names, cells, strict=True)])


def leave_report(folder: Path, runs: Sequence[Path]) -> None:
    """Write the page about runs that are done into a folder, or say how to make it later; a run never fails by it."""
    from ucb.experiments import report

    path = folder / PAGE
    if not report.can_draw():
        words = shlex.join(["ucb", "report", *map(str, runs), "-o", str(path)])
        say(f"for a page with charts: {report.HOW_TO_INSTALL}, then {words}")
        return
    try:
        report.write_page(report.results_at(runs), path)
        say(f"charts are in {path}")
    except OSError as error:
        say(f"there is no page with charts: {path} cannot be written: {error.strerror or error}")
