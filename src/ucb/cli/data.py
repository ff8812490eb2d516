"""``ucb data``: list, get, import and verify data sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from ucb.cli.failing import FAILED, INTERRUPTED, answering, complain, warn
from ucb.cli.show import console, say
from ucb.data import cache
from ucb.data import download as making
from ucb.data.cache import present, verify
from ucb.data.catalogue import CATALOGUE, DataSet, find

data_app = typer.Typer(
    help="List, get, import and verify data sets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _names(begun: str) -> list[str]:
    """Complete the name of a data set."""
    return [name for name in CATALOGUE if name.startswith(begun)]


Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="See `ucb data list`.", autocompletion=_names)]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="See `ucb data list`.", autocompletion=_names)]


@data_app.command("list")
def list_command(
    context: typer.Context,
    sources: Annotated[
        bool, typer.Option("--sources", help="Say where each comes from, and under what terms.")
    ] = False,
    debug: Debug = False,
) -> None:
    """List the data sets there are, and which of them are here."""
    with _answering(context, debug):
        here = present()
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for head in ("name", "what", "classes", "images", "size", "here"):
            table.add_column(head, justify="right" if head == "classes" else "left", no_wrap=True)
        for known in CATALOGUE.values():
            state = "yes" if known.name in here else "with ucb" if known.packaged else "no"
            size = "x".join(str(side) for side in known.shape)
            table.add_row(known.name, known.title, str(known.n_classes), _count(known), size, state)
        _print(table)
        for known in CATALOGUE.values() if sources else ():
            say(
                "\n".join(
                    [f"\n{known.name}: {known.note}", *(f"  {file.name}  {file.urls[0]}" for file in known.files)]
                )
            )
        say(f"\narray files are looked for in {cache.folder()} ({cache.VARIABLE} sets it)")


@data_app.command("get")
def get_command(context: typer.Context, names: Names, debug: Debug = False) -> None:
    """Download data sets and keep them as array files; a download that was cut goes on where it stopped."""
    with _answering(context, debug), _bars() as bars:
        for name in [find(name).name for name in names]:
            making.get(name, say, bars)


@data_app.command("import")
def import_command(
    context: typer.Context,
    name: Name,
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Its official files, or a folder of them.")],
    unverified: Annotated[bool, typer.Option("--unverified", help="Do not compare hashes.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Write an array file anew that is there.")] = False,
    debug: Debug = False,
) -> None:
    """Make a data set's array file from its official files, or from a folder of images for each class."""
    with _answering(context, debug):
        making.import_files(name, files, say, unverified, replace)


@data_app.command("verify")
def verify_command(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="All that are here, if left out.", autocompletion=_names),
    ] = None,
    debug: Debug = False,
) -> None:
    """Check array files: whether they are whole, as large as published, and as they were when they were made."""
    with _answering(context, debug):
        chosen = [find(name).name for name in names or present()]
        if not chosen:
            say(f"there are no array files in {cache.folder()}")
        wrong = 0
        for name in chosen:
            try:
                say(f"{name}: {verify(name)}")
            except (ValueError, OSError) as error:
                if debug or context.obj:
                    raise
                wrong += 1
                complain(error, cache.folder(), debug=False)
        if wrong:
            raise typer.Exit(FAILED)


@contextmanager
def _answering(context: typer.Context, debug: bool) -> Iterator[None]:
    """Do what is inside; if it cannot be done, say why in one sentence, and exit."""
    with answering(cache.folder(), debug or bool(context.obj)):
        try:
            yield
        except KeyboardInterrupt:
            warn("interrupted: what was downloaded is kept, and the same command goes on from there")
            raise typer.Exit(INTERRUPTED) from None


class Bars:
    """Shows how far a download is: a bar in a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(16), DownloadColumn(), TransferSpeedColumn())
        live = console.is_terminal and not console.is_dumb_terminal
        self.progress = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not live)
        self.name, self.bar = "", self.progress.add_task("", visible=False)

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Move the bar of the file that is being fetched."""
        if name != self.name:
            self.progress.remove_task(self.bar)
            self.name, self.bar = name, self.progress.add_task(name, total=total)
        self.progress.update(self.bar, completed=done, total=total)


@contextmanager
def _bars() -> Iterator[Bars]:
    bars = Bars()
    with bars.progress:
        yield bars


def _count(known: DataSet) -> str:
    """Return how many images there are to train and to test."""
    return "-" if known.train is None or known.test is None else f"{known.train:,} + {known.test:,}"


def _print(table: Table) -> None:
    """Print a table; into a file as wide as it is, and without blanks at the ends of its lines."""
    if console.is_terminal:
        console.print(table, highlight=False)
        return
    with console.capture() as printed:
        console.print(table, highlight=False, width=200)
    for line in printed.get().splitlines():
        say(line.rstrip())
