"""What is printed at the end of a run, and lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ucb.cli.terminal import Terminal, printable

console = Terminal()


def show_names(about: Mapping[str, str]) -> None:
    """Print names, and what each is."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, what in about.items():
        table.add_row(Text(printable(name)), Text(what))
    print_table(table)


def show_result(result: dict[str, Any], folder: Path) -> None:
    """Print the accuracies, ACC and BWT, and where the files are."""
    title, table = next(form for form in forms(result) if _fits(form[1]) or form[0] == SHORT)
    console.print()
    say(f"{result['benchmark']}, {result['method']}, seed {result['seed']}: {title}")
    console.print()
    print_table(table)
    console.print()
    hidden = " (generalised: no task named)" if result["generalised_acc"] is not None else ""
    figures = f"ACC {result['acc']:.2f}{hidden}"
    if result["bwt"] is not None:
        figures += f"   BWT {result['bwt']:+z.2f} (over n-1 tasks: {result['bwt_n1']:+z.2f})"
    say(f"{figures}   {result['seconds']:.0f} s")
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
    console.print()
    say(f"{len(results)} seeds: {', '.join(figures)}")


LONG, SHORT = "accuracy (%) on each task after each", "accuracy (%) on each task"


def forms(result: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """Return title and table of the accuracy matrix, in ever narrower forms; the last has a row for each task only."""
    names = result["tasks"]
    numbers = [str(number + 1) for number in range(len(names))]
    for rows, columns, digits in (names, names, 2), (names, numbers, 2), (numbers, numbers, 2), (numbers, numbers, 1):
        yield LONG, _matrix(result, rows, columns, digits)
    matrix = result["accuracy_matrix"]
    learnt = [row[-1] for row in matrix]
    pairs = [[_figure(first, 2), _figure(last, 2)] for first, last in zip(learnt, matrix[-1], strict=True)]
    yield SHORT, _table(["task", "when learnt", "at the end"], names, pairs)


def _matrix(result: dict[str, Any], names: list[str], heads: list[str], digits: int) -> Table:
    rows = [[_figure(value, digits) for value in row] for row in result["accuracy_matrix"]]
    return _table(["after", *heads], names, rows)


def _figure(value: float | None, digits: int) -> str:
    """Return a figure, or a dash where none was measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def _table(heads: list[str], names: list[str], rows: list[list[str]]) -> Table:
    """Return a table with a name before each row."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for head in heads:
        table.add_column(Text(printable(head)), justify="right" if table.columns else "left", no_wrap=True)
    for name, row in zip(names, rows, strict=True):
        table.add_row(Text(printable(name)), *row)
    return table


def _fits(table: Table) -> bool:
    """Whether the terminal is wide enough for the table."""
    unlimited = console.options.update(width=10_000)
    return Measurement.get(console, unlimited, table).maximum <= console.width


def print_table(table: Table) -> None:
    """Print a table; into a file without blanks at the ends of its lines."""
    if console.is_terminal:
        console.print(table, highlight=False)
        return
    with console.capture() as printed:
        console.print(table, highlight=False)
    for line in printed.get().splitlines():
        say(line.rstrip())


def say(line: str) -> None:
    """Print a line: a terminal gets it wrapped between words, a file as it is."""
    console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=not console.is_terminal)
