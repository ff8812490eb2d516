"""``ucb tune``: choose a method's settings on held-out data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ucb.bayes.checks import count
from ucb.cli.failing import INTERRUPTED, answering, warn
from ucb.cli.show import say
from ucb.engine import InterruptedRunError
from ucb.experiments.tuning.optuna_search import by_optuna
from ucb.experiments.tuning.records import TrialRecord as Record
from ucb.experiments.tuning.search import Grid, Point, Search, grid_of, points_of, refuse_points, values_of
from ucb.experiments.tuning.search import Trial as Found
from ucb.experiments.tuning.trials import by_grid
from ucb.experiments.tuning.trials import widen_search as widened
from ucb.stream.benchmarks import find

EPOCHS = 6
ONE_PASS = "tasks that fade into each other pass by once: leave out --epochs and --recipe-epochs"


def tune_command(
    context: typer.Context,
    benchmark: Annotated[str, typer.Argument(metavar="BENCHMARK", help="The stream of tasks.")],
    method: Annotated[str, typer.Option(help="Whose settings to choose.")] = "ucb",
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2", help="Values to try instead of the method's own; may be repeated."),
    ] = None,
    prior: Annotated[bool, typer.Option("--prior", help="Try the paper's 27 priors too.")] = False,
    trials: Annotated[
        int | None, typer.Option(help="Let Optuna try so many points of the grid, not all of them.")
    ] = None,
    widen: Annotated[
        int, typer.Option(min=0, help="Go up to so many steps beyond the grid while the best lies at its edge.")
    ] = 0,
    epochs: Annotated[
        int | None, typer.Option(help="The most epochs a task may take, while choosing.  [default: 6]")
    ] = None,
    recipe_epochs: Annotated[int | None, typer.Option(help="Epochs in the recipe.  [default: the same]")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    jobs: Annotated[int, typer.Option(help="Trials at a time: side by side on a GPU, else in processes.")] = 1,
    all_tasks: Annotated[
        bool, typer.Option("--all-tasks", help="Let held-out data of all tasks decide, not of the first two.")
    ] = False,
    blur: Annotated[float | None, typer.Option(help="As in `ucb run`: one pass, and no boundaries.")] = None,
    single_head: Annotated[bool, typer.Option("--single-head", help="As in `ucb run`: the task is hidden.")] = False,
    apart: Annotated[bool, typer.Option("--apart", help="As in `ucb run`: tasks share no outputs.")] = False,
    task_told: Annotated[bool, typer.Option("--task-told", help="As in `ucb run`: one head, and the task.")] = False,
    net: Annotated[str | None, typer.Option(help="As in `ucb run`.  [default: the benchmark's]")] = None,
    hidden: Annotated[
        list[int] | None, typer.Option(metavar="<int>", help="Units of a hidden layer of the mlp, as in `ucb run`.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Keep the recipe under this name.  [default: BENCHMARK]")] = None,
    results: Annotated[Path, typer.Option(help="Where every trial is kept.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Where the recipe is written.")] = Path("recipes"),
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Choose a method's settings on held-out data of the first two tasks, and write them as a recipe.

    Test data never enters. Every trial is kept as it ends; a search that was cut goes on.
    """
    with answering(out, debug or context.obj):
        _refuse(trials, widen, epochs, recipe_epochs, device, jobs)
        if blur is not None and (epochs, recipe_epochs) != (None, None):
            raise ValueError(ONE_PASS)
        epochs = EPOCHS if epochs is None else epochs
        find(benchmark)
        search = Search(
            benchmark,
            method,
            epochs,
            device,
            blur,
            all_tasks,
            single_head=single_head,
            net=net,
            net_options={"hidden": hidden} if hidden else {},
            name=name,
            apart=apart,
            task_told=task_told,
        )
        space = grid_of(method, prior=prior, instead=_values(grid or []))
        points = points_of(space)
        try:
            refuse_points(method, points)
        except ValueError as error:
            raise ValueError(f"--grid: {error}") from None
        record = Record(search, results)
        with _stopping_well(record):
            points = _tried(record, space, points, trials, widen, jobs)
            last = 1 if blur is not None else epochs if recipe_epochs is None else recipe_epochs
            _write(record, record.recipe(values_of(points) if widen else space, points, last), out)


def _tried(record: Record, space: Grid, points: list[Point], trials: int | None, widen: int, jobs: int) -> list[Point]:
    """Try what the record lacks, and return all points that may be chosen."""
    known = sum(not record.lacks(point) for point in points)
    say(f"{record.search.method} on {record.search.kind}: {len(points)} points, {known} tried before")
    if trials is not None:
        by_optuna(record, space, trials, _tell, jobs)
    else:
        by_grid(record, points, jobs, _tell)
    return widened(record, points, widen, jobs, _tell) if widen else points


def _write(record: Record, recipe: dict[str, Any], out: Path) -> None:
    """Write the recipe, and say what was chosen and where it is."""
    say(f"{recipe['found']}: {_words(recipe['settings'])}")
    for path in record.write_recipes(recipe, out):
        say(f"the recipe is {path}")
    if control := record.searched_control(out):
        say(f"{control} is left as it is: the settings of UCB's control were searched too")


def _refuse(
    trials: int | None, widen: int, epochs: int | None, recipe_epochs: int | None, device: str, jobs: int
) -> None:
    """Refuse numbers that make no search."""
    numbers = {"--trials": trials, "--epochs": epochs, "--recipe-epochs": recipe_epochs, "--jobs": jobs}
    for name, value in numbers.items():
        if value is not None:
            count(name, value)
    if trials is None:
        return
    if widen:
        raise ValueError("--widen goes on from a whole grid, and --trials tries a part of one: leave one of them out")
    if jobs > 1 and not device.startswith("cuda"):
        raise ValueError(
            "--jobs beside --trials needs a GPU, as Optuna picks a point by what is known of those before: leave out "
            "--jobs, or leave out --trials to try the whole grid"
        )


@contextmanager
def _stopping_well(record: Record) -> Iterator[None]:
    """Answer Ctrl-C with what is kept."""
    try:
        yield
    except (KeyboardInterrupt, InterruptedRunError):
        kept = len(record.trials)
        trials = f"{kept} trial{' is' if kept == 1 else 's are'} kept in {record.path}" if kept else "no trial is done"
        warn(f"interrupted: {trials}; the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from None


def _values(words: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        key, _, values = word.partition("=")
        if not (key and values):
            raise ValueError(f"--grid takes KEY=V1,V2, not {word!r}")
        if key in found:
            raise ValueError(f"--grid has {key} twice: name it once, with all its values")
        found[key] = values.split(",")
    return found


def _tell(found: Found) -> None:
    if found["score"] is None:
        say(f"{_words(found['settings'])}: {found['failed']}")
    else:
        figures = f"score {found['score']:.4f}, ACC {found['acc']:.2f}, BWT {found['bwt']:+.2f}"
        say(f"{_words(found['settings'])}: {figures}, {found['seconds']:.0f} s")


def _words(settings: dict[str, Any]) -> str:
    return " ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()
    )
