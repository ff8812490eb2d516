"""``ucb report``: one page about runs; and the page that a run leaves in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ucb.cli.failing import answering
from ucb.cli.show import say
from ucb.experiments import report

PAGE = "report.html"
MOST_NAMED = 5


def report_command(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS...", help="Result files, run folders, or folders that hold some of these."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(PAGE),
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Write one page about runs: accuracies, forgetting, sigma, calibration, cost, methods beside each other."""
    with answering(Path(), debug or bool(context.obj)):
        left_out: list[Path] = []
        found = report.results_at(runs, left_out.append)
        report.write_page(found, out)
        if left_out:
            say(f"left out, as there is no result yet: {_some(left_out)}")
        say(f"{len(found)} run{'' if len(found) == 1 else 's'} in {out}")


def leave_report(folder: Path, runs: Sequence[Path]) -> None:
    """Write the page about runs that are done into a folder, or say how to make it later; a run never fails by it."""
    path = folder / PAGE
    if not report.can_draw():
        words = shlex.join(["ucb", "report", *map(str, runs), "-o", str(path)])
        say(f"a page with charts: {report.HOW_TO_INSTALL}, then {words}")
        return
    try:
        report.write_page(report.results_at(runs), path)
        say(f"charts are in {path}")
    except OSError as error:
        say(f"there is no page with charts: {path} cannot be written: {error.strerror or error}")


def _some(places: Sequence[Path]) -> str:
    """Name places, of many the first ones."""
    names = ", ".join(map(str, places[:MOST_NAMED]))
    return names if len(places) <= MOST_NAMED else f"{names} and {len(places) - MOST_NAMED} more"
