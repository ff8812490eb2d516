"""``ucb tune``: choose a method's settings on held-out data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ucb.cli.failing import answering
from ucb.cli.order import pairs
from ucb.cli.show import say
from ucb.tuning import Found, Record, Search, by_grid, by_optuna, grid_of, points_of, values_of, widened


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
    epochs: Annotated[int, typer.Option(help="The most epochs a task may take, while choosing.")] = 6,
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
        options = {"hidden": hidden} if hidden else {}
        search = Search(
            benchmark,
            method,
            epochs,
            device,
            blur,
            all_tasks,
            single_head=single_head,
            net=net,
            net_options=options,
            name=name,
            apart=apart,
            task_told=task_told,
        )
        if widen and trials is not None:
            raise ValueError(
                "--widen goes on from a whole grid, and --trials tries a part of one: leave one of them out"
            )
        space = grid_of(method, prior=prior, instead=_values(grid or []))
        points, record = points_of(space), Record(search, results)
        known = sum(record.find(point) is not None for point in points)
        say(f"{method} on {search.kind}: {len(points)} points, {known} tried before")
        if trials is None:
            by_grid(record, points, jobs, _tell)
            if widen:
                points = widened(record, points, widen, jobs, _tell)
                space = values_of(points)
        else:
            by_optuna(record, space, trials, _tell)
        recipe = record.recipe(space, points, recipe_epochs or epochs)
        say(f"{recipe['found']}: {_words(recipe['settings'])}")
        for path in record.write_recipes(recipe, out):
            say(f"the recipe is {path}")


def _values(words: Iterable[str]) -> dict[str, list[str]]:
    return {key: str(values).split(",") for key, values in pairs(words).items()}


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
