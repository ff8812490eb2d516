"""``ucb data``: list, get, import and verify data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ucb.cli.command import FAILED, Command, Debug, complain, complete, explain_interrupt
from ucb.cli.terminal import WIDE, make_table, print_table, say

data_app = typer.Typer(
    help="List, get, import and verify data sets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
STOPPED = "interrupted: what was downloaded is kept, and the same command goes on from there"
KNOWN = "A data set; `ucb data list` lists them."
complete_name = complete("ucb.data.catalogue", "CATALOGUE")
Name = Annotated[str, Argument(metavar="NAME", help=KNOWN, autocompletion=complete_name)]
Names = Annotated[list[str], Argument(metavar="NAME", help=KNOWN, autocompletion=complete_name)]


@data_app.command("list", cls=Command, short_help="List the data sets, and which of them are here.")
def list_command(
    sources: Annotated[bool, Option("--sources", help="Say where each comes from, and under what terms.")] = False,
    debug: Debug = False,
) -> None:
    """List the data sets there are, and which of them are on this machine."""
    from ucb.data import cache
    from ucb.data.catalogue import CATALOGUE

    here, rows = cache.present(), []
    for known in CATALOGUE.values():
        images = "-" if known.train is None or known.test is None else f"{known.train:,} + {known.test:,}"
        state = "yes" if known.name in here else "with ucb" if known.packaged else "no"
        shape = "x".join(str(side) for side in known.shape)
        rows.append([known.name, known.title, str(known.n_classes), images, shape, state])
    heads = ["name", "what", "classes", "images", "size", "here"]
    print_table(make_table(heads, rows, left={"what", "images", "size", "here"}), WIDE)
    for known in CATALOGUE.values() if sources else ():
        files = [f"  {file.name}  {file.urls[0]}" for file in known.files]
        say("\n".join([f"\n{known.name}: {known.note}", *files]))
    say(f"\narray files are looked for in {cache.folder()} ({cache.VARIABLE} sets it)")


@data_app.command("get", cls=Command, short_help="Download data sets and keep them as array files.")
def get_command(names: Names, debug: Debug = False) -> None:
    """Download data sets and keep them as array files; a download that was interrupted goes on where it stopped."""
    from ucb.cli.watch import DownloadBar
    from ucb.data import download
    from ucb.data.catalogue import find

    with explain_interrupt(lambda _: STOPPED), DownloadBar() as bar:
        for name in [find(name).name for name in names]:
            download.get(name, say, bar)


@data_app.command("import", cls=Command, short_help="Make a data set's array file from files that you have.")
def import_command(
    name: Name,
    files: Annotated[list[Path], Argument(metavar="FILE", help="Its official files, or a folder of them.")],
    unverified: Annotated[bool, Option("--unverified", help="Do not compare hashes.")] = False,
    replace: Annotated[bool, Option("--replace", help="Replace an array file that is there already.")] = False,
    debug: Debug = False,
) -> None:
    """Make a data set's array file from its official files, or from a folder of images for each class."""
    from ucb.data import download

    with explain_interrupt(lambda _: STOPPED):
        download.import_files(name, files, say, unverified, replace)


@data_app.command("verify", cls=Command, short_help="Check array files against what is known of them.")
def verify_command(
    names: Annotated[
        list[str] | None,
        Argument(metavar="NAME", help="Data sets; without any, all that are here.", autocompletion=complete_name),
    ] = None,
    debug: Debug = False,
) -> None:
    """Check that array files are whole, as large as published, and unchanged since they were made."""
    from ucb.data import cache
    from ucb.data.catalogue import find

    chosen = [find(name).name for name in names or cache.present()]
    if not chosen:
        say(f"there are no array files in {cache.folder()}")
    wrong = 0
    for name in chosen:
        try:
            say(f"{name}: {cache.verify(name)}")
        except (ValueError, OSError) as error:
            if debug:
                raise
            wrong += 1
            complain(error, debug)
    if wrong:
        raise typer.Exit(FAILED)
