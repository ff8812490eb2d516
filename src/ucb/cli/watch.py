"""What a person sees of work that goes on: live displays in a terminal, plain lines elsewhere, and a run's log."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich import progress
from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ucb.cli.terminal import console as standard_output
from ucb.cli.terminal import errors as standard_error
from ucb.cli.terminal import escape, warn
from ucb.observer import Epoch, Observer
from ucb.storage import open_for_append

if TYPE_CHECKING:
    from ucb.engine.result import TaskMetrics


PAUSE = 0.05
"""Seconds between two moves of the bar."""
SILENCE = 10.0
"""Seconds between two lines about how far the work is, where there is no terminal."""
ROOMY, SNUG = 76, 58
"""From these many columns on there is room for a bar, and for the accuracy."""


def is_live(console: Console = standard_output) -> bool:
    """Whether a display can move there."""
    return console.is_terminal and not console.is_dumb_terminal


def format_epoch(epoch: Epoch) -> str:
    """Return an epoch in one line."""
    losses = f"loss {epoch.loss:.4f}"
    if not math.isnan(epoch.validation_loss):  # a stream without boundaries has no validation data
        losses += f", validation {epoch.validation_loss:.4f}"
    return f"task {epoch.task + 1} epoch {epoch.epoch + 1}: {losses}, rate {epoch.rate:.2g}, {epoch.seconds:.1f} s"


class Lines(Observer):
    """Prints plain lines about a run, for a file or a pipe, and keeps them in a log with the time."""

    def __init__(self, console: Console, log: Path, name: str = "") -> None:
        self.console, self.log, self.name = console, log, name
        """``name`` stands before every line, where several runs are shown."""

    def __enter__(self) -> Self:
        """Get ready to show; plain lines need nothing."""
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the terminal as it was."""

    def epoch_ended(self, epoch: Epoch) -> None:
        """Print the epoch."""
        self.noted(format_epoch(epoch))

    def task_ended(self, task: int, row: list[TaskMetrics]) -> None:
        """Print the accuracy on every task so far."""
        self.noted(f"after task {task + 1}: " + " ".join(f"{judgement.accuracy:.2f}" for judgement in row))

    def noted(self, sentence: str) -> None:
        """Print a line as it is, and keep it."""
        self.keep(sentence)
        self.console.print(f"{self.name}{sentence}", highlight=False, markup=False, soft_wrap=True)

    def keep(self, line: str) -> None:
        """Add a line to the log."""
        text = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {escape(line)}\n"
        try:
            with open_for_append(self.log) as file:
                file.write(text.encode("utf-8", "backslashreplace"))
        except OSError as error:  # the error of a full disk does not name the file
            if error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, str(self.log)) from None


class LinesWithoutEpochs(Lines):
    """Prints the accuracies after each task; epochs go to the log only."""

    def epoch_ended(self, epoch: Epoch) -> None:
        """Keep the epoch."""
        self.keep(format_epoch(epoch))


class Live(Lines):
    """Shows a bar for the whole run, with the last epoch's loss, the accuracy so far and the time left at most."""

    def __init__(self, console: Console, log: Path, tasks: int, epochs: int) -> None:
        super().__init__(console, log)
        self.tasks, self.epochs = tasks, epochs
        self.loss = self.accuracy = ""
        self.moving = False
        self.moved_at = -PAUSE
        self.progress = Progress(*_columns(console.width), console=console, transient=True)
        self.bar = self.progress.add_task("getting ready", total=None, loss="", accuracy="", left="")

    def __enter__(self) -> Self:
        """Start the display."""
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Take the display away: the lines above it stay."""
        self.progress.stop()

    def task_began(self, task: int, name: str) -> None:
        """Forget the last task's loss."""
        self.loss = ""
        self._describe(task, 0)

    def batch_learnt(self, task: int, epoch: int, batch: int, batches: int) -> None:
        """Move the bar, if it was not just moved: a GPU learns ten thousand batches a second."""
        now = time.monotonic()
        if now < self.moved_at + PAUSE and batch > 1:
            return
        self.moved_at = now
        done = task * self.epochs + epoch + batch / batches
        if not self.moving:  # after a resume it starts in the middle, and what was done before took no time now
            self.progress.reset(self.bar, total=self.tasks * self.epochs, completed=done)  # type: ignore[arg-type]
            self.moving = True
        self.progress.update(self.bar, completed=done)
        if batch == 1:
            self._describe(task, epoch)

    def epoch_ended(self, epoch: Epoch) -> None:
        """Show the epoch's loss."""
        self.keep(format_epoch(epoch))
        self.loss = f"loss {epoch.loss:.3f}"
        self._describe(epoch.task, epoch.epoch)

    def task_ended(self, task: int, row: list[TaskMetrics]) -> None:
        """Print the accuracies above the bar, and their mean beside it."""
        super().task_ended(task, row)
        self.accuracy = f"accuracy {sum(judgement.accuracy for judgement in row) / len(row):.2f}"
        self._describe(task, self.epochs - 1)

    def _describe(self, task: int, epoch: int) -> None:
        where = f"task {task + 1}/{self.tasks} epoch {epoch + 1}/{self.epochs}"
        self.progress.update(self.bar, description=where, loss=self.loss, accuracy=self.accuracy, left="left")


def _columns(width: int) -> list[ProgressColumn]:
    """Return what the display shows: in a narrow terminal the bar goes first, then the accuracy."""
    where, loss, accuracy, left = (
        TextColumn(f"{{task.{field}}}") for field in ("description", "fields[loss]", "fields[accuracy]", "fields[left]")
    )
    if width >= ROOMY:
        return [where, progress.BarColumn(bar_width=16), loss, accuracy, TimeRemainingColumn(), left]
    return [where, loss, *([accuracy] if width >= SNUG else []), TimeRemainingColumn()]


class TimeLeftColumn(TimeRemainingColumn):
    """The time left, as soon as the pace is known."""

    def render(self, task: Task) -> Text:
        """Return what is shown."""
        return Text("") if task.time_remaining is None else super().render(task) + " left"


class MovingBar:
    """A bar with the time left that a terminal shows until it is stopped; elsewhere nothing is shown.

    It is on standard error: standard output may go to a file meanwhile.
    """

    def __init__(self, *columns: ProgressColumn) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            *columns,
            TimeLeftColumn(),
            console=standard_error,
            transient=True,
            redirect_stdout=False,
        )
        self.live = is_live(standard_error)
        if self.live:
            self.progress.start()

    def __enter__(self) -> Self:
        """Show the bar."""
        return self

    def __exit__(self, *error: object) -> None:
        """Take the bar away."""
        self.stop()

    def stop(self) -> None:
        """Take the bar away."""
        if self.live:
            self.progress.stop()


class ExampleBar(MovingBar, Observer):
    """How many examples some work has gone through: a bar, or a line now and then where there is no terminal."""

    def __init__(self, what: str) -> None:
        super().__init__(progress.BarColumn(), progress.MofNCompleteColumn())
        self.what, self.last = what, time.monotonic()
        self.said: list[str] = []
        self.bar = self.progress.add_task(what, total=None)

    def moved(self, done: int, total: int) -> None:
        """Move the bar. What is done at the first move was done before, and took no time now."""
        if self.progress.tasks[0].total != total:
            self.progress.reset(self.bar, total=total, completed=done)
            self.progress.advance(self.bar, 0)  # from here on the pace is measured, so that the next move tells it
        self.progress.update(self.bar, completed=done)
        if not self.live and time.monotonic() >= self.last + SILENCE:
            self.last = time.monotonic()
            left = self.progress.tasks[0].time_remaining
            hint = "" if left is None else f", about {timedelta(seconds=left)} left"
            warn(f"{self.what}: {done} of {total}{hint}")

    def noted(self, sentence: str) -> None:
        """Print a sentence."""
        self.said.append(sentence)
        warn(escape(sentence))


class DownloadBar(MovingBar):
    """How far a download is."""

    def __init__(self) -> None:
        super().__init__(progress.BarColumn(16), progress.DownloadColumn(), progress.TransferSpeedColumn())
        self.name, self.bar = "", self.progress.add_task("", visible=False)

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Move the bar of the file that is being fetched."""
        if name != self.name:
            self.progress.remove_task(self.bar)
            self.name, self.bar = name, self.progress.add_task(name, total=total)
        self.progress.update(self.bar, completed=done, total=total)
