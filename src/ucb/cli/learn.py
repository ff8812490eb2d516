"""``ucb learn``: one wave of your own data into a model file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ucb.cli.failing import INTERRUPTED, answering, saying, warn
from ucb.cli.output import size
from ucb.cli.show import console, say
from ucb.cli.terminal import printable
from ucb.data.readers import Skipped
from ucb.data.readers.reader import counted
from ucb.engine import InterruptedRunError
from ucb.incremental import METHODS, Report, learn
from ucb.incremental.progress_file import progress_path, remove_progress
from ucb.progress import Observer

SHOWN = 5
"""Files that could not be read are named up to this many."""
SILENCE = 10.0
"""Seconds between two lines about how far the work is, where there is no terminal."""
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="The model's file.")]
Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A folder of class folders with images, or a .csv, .npz or .parquet file."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Name every file that could not be read.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


def learn_command(
    context: typer.Context,
    model: ModelFile,
    data: Data,
    name: Annotated[str | None, typer.Option(metavar="WAVE", help="What to call this wave.  [default: wave N]")] = None,
    method: Annotated[
        str | None, typer.Option(help=f"How to learn: {' or '.join(METHODS)}.  [default: fixed, or the model's]")
    ] = None,
    net: Annotated[str | None, typer.Option(help="With ucb-ng: small, mlp, alexnet or resnet18.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="A table's column with the classes.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Fixes what is held out, and all noise.  [default: 0]")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    epochs: Annotated[int | None, typer.Option(min=1, help="With ucb-ng: the most epochs a wave may take.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Learn data once more that were learnt before.")] = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Learn a wave of labelled data. MODEL is made at the first wave; DATA may be deleted afterwards."""
    with answering(model, debug or context.obj), stopping_well(model, learns=True), watched("learning") as watcher:
        report = learn(
            model,
            data,
            name,
            method=method,
            net=net,
            label=label,
            seed=seed,
            device=device,
            epochs=epochs,
            observer=watcher,
            again=again,
        )
        watcher.done()
        with saying(f"the wave is learnt, and {model} has it: do not learn it again"):
            _show(report, model, verbose)


def _show(report: Report, model: Path, verbose: bool) -> None:
    wave = report.wave
    for remark in report.remarks:
        say(f"note: {remark}")
    show_skipped(report.skipped, verbose)
    number, classes = sum(wave.examples.values()), len(wave.examples)
    new = f", {len(report.new_classes)} of them new" if report.new_classes else ", none of them new"
    what = f"{counted(number, 'example', 'examples')} of {counted(classes, 'class', 'classes')}"
    say(f"learnt {wave.name!r}: {what}{new}, in {report.seconds:.1f} s")
    if wave.accuracy is None:
        say("too few examples to hold any out: the accuracy is not known")
    else:
        asked = sum(asked for asked, _ in wave.held_out.values())
        what = counted(asked, "held-out example", "held-out examples")
        say(f"right in {wave.accuracy:.2f} % of {what} of this wave, no wave named")
    if report.effects:
        say(f"effect on each earlier wave ({report.effects[0].meaning}):")
    for effect in report.effects:
        say(f"  {effect.wave!r}: {effect.change:.3f}, {effect.words}")
    for warning in report.warnings:
        warn(f"warning: {printable(warning)}")
    say(f"the model is in {model} ({size(model.stat().st_size)}); the data are no longer needed")


def show_skipped(skipped: list[Skipped], verbose: bool, on_errors: bool = False) -> None:
    """Name what could not be read."""
    if not skipped:
        return
    write, one = (warn, "input") if on_errors else (say, "example")
    write(counted(len(skipped), f"{one} could not be read and is", f"{one}s could not be read and are") + " left out:")
    shown = skipped if verbose else skipped[:SHOWN]
    for each in shown:
        write(f"  {printable(each.name)}: {printable(each.why)}")
    if len(skipped) > len(shown):
        write(f"  and {len(skipped) - len(shown)} more (--verbose names all)")


@contextmanager
def stopping_well(model: Path, learns: bool = False) -> Iterator[None]:
    """Answer Ctrl-C with a sentence."""
    before = _stamp(model)
    try:
        yield
    except (KeyboardInterrupt, InterruptedRunError):
        if not learns:
            warn(f"interrupted: {model} is as it was")
            raise typer.Exit(INTERRUPTED) from None
        if _stamp(model) != before:
            remove_progress(model)
            warn(f"interrupted, but the wave is learnt: {model} has it")
            raise typer.Exit(INTERRUPTED) from None
        kept = progress_path(model).exists()
        how = "the same command goes on where it stopped" if kept else "nothing of this wave was kept"
        what = "is as it was" if model.exists() else "is not there yet"
        warn(f"interrupted: {model} {what}; {how}")
        raise typer.Exit(INTERRUPTED) from None


def _stamp(model: Path) -> tuple[int, int] | None:
    """Return what tells a model file from the one that replaces it."""
    if not model.is_file():
        return None
    status = model.stat()
    return status.st_ino, status.st_mtime_ns


class Bar(Observer):
    """A bar in a terminal; elsewhere a line now and then."""

    def __init__(self, what: str) -> None:
        self.what, self.last = what, time.monotonic()
        self.progress: Progress | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.progress = Progress(*columns, console=console, transient=True)
            self.task = self.progress.add_task(what, total=None)
            self.progress.start()

    def moved(self, done: int, total: int) -> None:
        """Move the bar."""
        if self.progress is not None:
            self.progress.update(self.task, completed=done, total=total)
        elif time.monotonic() >= self.last + SILENCE:
            self.last = time.monotonic()
            warn(f"{self.what}: {done} of {total}")

    def noted(self, sentence: str) -> None:
        """Print a sentence."""
        warn(sentence)

    def done(self) -> None:
        """Take the bar away."""
        if self.progress is not None:
            self.progress.stop()


@contextmanager
def watched(what: str) -> Iterator[Bar]:
    """Show how far some work is."""
    bar = Bar(what)
    try:
        yield bar
    finally:
        bar.done()
