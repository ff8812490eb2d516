"""What is said of runs that are done: the accuracies in the terminal, and one page with charts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

from rich.table import Table
from typer import Argument, Option

from ucb.cli.command import Debug
from ucb.cli.terminal import fits, format_count, make_table, print_table, say

PAGE = "report.html"
MOST_NAMED = 5
LONG, SHORT = "accuracy (%) on each task after each", "accuracy (%) on each task"


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
    for name in ("acc", "bwt"):
        values = [result[name] for result in results if result[name] is not None]
        if values:
            spread = f" +- {stdev(values):.2f}" if len(values) > 1 else ""
            figures.append(f"{name.upper()} {mean(values):{'+z' if name == 'bwt' else ''}.2f}{spread}")
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
