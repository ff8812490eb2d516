"""What a person sees of a run: a live display in a terminal, plain lines elsewhere, and a log file."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ucb.engine import Epoch, Observer
from ucb.engine.evaluate import Judgement


def line_of(epoch: Epoch) -> str:
    """Say an epoch in one line."""
    losses = f"loss {epoch.loss:.4f}, validation {epoch.validation_loss:.4f}"
    return f"task {epoch.task + 1} epoch {epoch.epoch + 1}: {losses}, rate {epoch.rate:.2g}, {epoch.seconds:.1f} s"


def row_of(task: int, row: list[Judgement]) -> str:
    """Say how well all tasks so far are known."""
    return f"after task {task + 1}: " + " ".join(f"{judgement.accuracy:.2f}" for judgement in row)


class Lines(Observer):
    """Prints plain lines, for a file or a pipe, and keeps them in a log with the time."""

    def __init__(self, console: Console, log: Path) -> None:
        self.console, self.log = console, log

    def epoch_ended(self, epoch: Epoch) -> None:
        """Print the epoch."""
        self.say(line_of(epoch))

    def task_ended(self, task: int, row: list[Judgement]) -> None:
        """Print the accuracies."""
        self.say(row_of(task, row))

    def noted(self, sentence: str) -> None:
        """Print the sentence."""
        self.say(sentence)

    def say(self, line: str) -> None:
        """Print a line as it is, and keep it."""
        self.keep(line)
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def keep(self, line: str) -> None:
        """Add a line to the log."""
        with self.log.open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")


class Live(Lines):
    """Shows a bar for the present task, with the loss of the last epoch and the time left."""

    def __init__(self, console: Console, log: Path, tasks: int, epochs: int) -> None:
        super().__init__(console, log)
        self.tasks, self.epochs = tasks, epochs
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, TextColumn("{task.fields[said]}"), console=console)
        self.bar = self.progress.add_task("", said="")

    def task_began(self, task: int, name: str) -> None:
        """Start the bar anew."""
        self.progress.reset(self.bar, description=f"task {task + 1}/{self.tasks} {name}", said="")

    def batch_learnt(self, task: int, epoch: int, batch: int, batches: int) -> None:
        """Move the bar."""
        self.progress.update(self.bar, total=self.epochs * batches, completed=epoch * batches + batch)

    def epoch_ended(self, epoch: Epoch) -> None:
        """Show the epoch beside the bar."""
        self.keep(line_of(epoch))
        said = f"epoch {epoch.epoch + 1}/{self.epochs} loss {epoch.loss:.3f} validation {epoch.validation_loss:.3f}"
        self.progress.update(self.bar, said=said)
