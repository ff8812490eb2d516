"""``ucb tune``: choose a method's settings on held-out data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ucb.cli.command import Debug, Device, explain_interrupt
from ucb.cli.run import Apart, BenchmarkName, Blur, Hidden, MethodName, Net, SingleHead, TaskTold
from ucb.cli.terminal import format_count, say

if TYPE_CHECKING:
    from ucb.experiments.tuning.records import TrialRecord
    from ucb.experiments.tuning.search import Trial

EPOCHS = 6
ONE_PASS = "tasks that fade into each other pass by once: leave out --epochs and --recipe-epochs"


def tune_command(
    benchmark: BenchmarkName,
    method: MethodName = "ucb",
    grid: Annotated[
        list[str] | None, Option(metavar="KEY=V1,V2", help="Values to try instead of the method's own; repeatable.")
    ] = None,
    prior: Annotated[bool, Option("--prior", help="Try the paper's 27 priors, too.")] = False,
    trials: Annotated[
        int | None, Option(metavar="N", help="Let Optuna try N points, instead of the whole grid.")
    ] = None,
    widen: Annotated[
        int, Option(metavar="N", min=0, help="Go up to N steps beyond the grid while the best is at its edge.")
    ] = 0,
    epochs: Annotated[int | None, Option(help="The most epochs that a task may take in a trial.  [default: 6]")] = None,
    recipe_epochs: Annotated[int | None, Option(help="Epochs in the recipe.  [default: as in the trials]")] = None,
    device: Device = "cpu",
    jobs: Annotated[int, Option(help="Trials at a time: side by side on a GPU, in processes on a CPU.")] = 1,
    all_tasks: Annotated[
        bool, Option("--all-tasks", help="Choose by data of all tasks, not of the first two.")
    ] = False,
    blur: Blur = None,
    single_head: SingleHead = False,
    apart: Apart = False,
    task_told: TaskTold = False,
    net: Net = None,
    hidden: Hidden = None,
    name: Annotated[str | None, Option(help="Write the recipe under this name.  [default: BENCHMARK]")] = None,
    results: Annotated[Path, Option(help="The folder that keeps every trial.")] = Path("results"),
    out: Annotated[Path, Option(help="The folder that the recipe is written into.")] = Path("recipes"),
    debug: Debug = False,
) -> None:
    """Choose a method's settings on held-out data of the first two tasks, and write them as a recipe.

    Test data are never used. Every trial is kept as soon as it ends; the same command goes on with a search that was
    interrupted.
    """
    from ucb.data.streams.benchmarks import find
    from ucb.experiments.tuning.optuna_search import search_with_optuna
    from ucb.experiments.tuning.records import TrialRecord
    from ucb.experiments.tuning.search import Search, grid_of, points_of, refuse_points, values_of
    from ucb.experiments.tuning.trials import search_grid, widen_search

    _refuse(trials, widen, epochs, recipe_epochs, device, jobs)
    if blur is not None and (epochs, recipe_epochs) != (None, None):
        raise ValueError(ONE_PASS)
    epochs = EPOCHS if epochs is None else epochs
    find(benchmark)
    scenario: dict[str, Any] = {"single_head": single_head, "apart": apart, "task_told": task_told, "blur": blur}
    scenario |= {"net": net, "net_options": {"hidden": hidden} if hidden else {}}
    search = Search(benchmark, method, epochs, device, all_tasks=all_tasks, name=name, **scenario)
    space = grid_of(method, prior=prior, instead=_parse_grid(grid or []))
    points = points_of(space)
    try:
        refuse_points(method, points)
    except ValueError as error:
        raise ValueError(f"--grid: {error}") from None
    record = TrialRecord(search, results)
    with explain_interrupt(lambda _: _describe_stop(record)):
        known = sum(not record.lacks(point) for point in points)
        say(f"{method} on {search.kind}: {len(points)} points, {known} tried before")
        if trials is not None:
            search_with_optuna(record, space, trials, _tell, jobs)
        else:
            search_grid(record, points, jobs, _tell)
        if widen:
            points = widen_search(record, points, widen, jobs, _tell)
            space = values_of(points)
        recipe = record.recipe(space, points, 1 if blur is not None else recipe_epochs or epochs)
        say(f"{recipe['found']}: {_words(recipe['settings'])}")
        for path in record.write_recipes(recipe, out):
            say(f"the recipe is {path}")
        if control := record.find_searched_control(out):
            say(f"{control} is left as it is: the settings of UCB's control were searched too")


def _refuse(
    trials: int | None, widen: int, epochs: int | None, recipe_epochs: int | None, device: str, jobs: int
) -> None:
    """Refuse numbers that make no search."""
    from ucb.checks import count

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


def _describe_stop(record: TrialRecord) -> str:
    """Say what is kept of a search that is interrupted."""
    kept = format_count(len(record.trials), "trial is", "trials are")
    trials = f"{kept} kept in {record.path}" if record.trials else "no trial is done"
    return f"interrupted: {trials}; the same command goes on from here"


def _parse_grid(words: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        key, _, values = word.partition("=")
        if not (key and values):
            raise ValueError(f"--grid takes KEY=V1,V2, not {word!r}")
        if key in found:
            raise ValueError(f"--grid has {key} twice: name it once, with all its values")
        found[key] = values.split(",")
    return found


def _tell(found: Trial) -> None:
    if found["score"] is None:
        say(f"{_words(found['settings'])}: {found['failed']}")
    else:
        figures = f"score {found['score']:.4f}, ACC {found['acc']:.2f}, BWT {found['bwt']:+.2f}"
        say(f"{_words(found['settings'])}: {figures}, {found['seconds']:.0f} s")


def _words(settings: dict[str, Any]) -> str:
    return " ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()
    )
