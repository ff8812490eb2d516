"""Errors become one sentence and an exit code.

0: done. 1: failed. 2: wrong usage. 3: done and not to be repeated, but it could not be printed. 130: interrupted, with
the state saved.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from ucb.cli.terminal import Terminal, printable
from ucb.engine import InterruptedRunError
from ucb.engine.orders import CONFIG, RESULT

FAILED, WRONG_USAGE, UNSAID, INTERRUPTED = 1, 2, 3, 130
errors = Terminal(stderr=True)


@contextmanager
def answering(folder: Path, debug: bool, *others: Path) -> Iterator[None]:
    """Do what is inside; if it cannot be done, say why in one sentence, and exit. Runs may be in ``others`` too."""
    try:
        yield
    except (InterruptedRunError, KeyboardInterrupt) as stop:
        warn(interruption(stop, folder, *others))
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:
        raise typer.Exit(complain(error, folder, debug)) from None


@contextmanager
def saying(done: str) -> Iterator[None]:
    """Print what came of work; if that cannot be printed, say where errors go that the work is ``done``."""
    try:
        yield
    except (OSError, SystemExit) as error:  # Rich exits where nobody reads any more
        if isinstance(error, OSError) and error.filename:
            raise
        why = error.strerror if isinstance(error, OSError) else "nobody reads it"
        warn(f"{done}; what is to be said of it cannot be printed: {why}")
        raise typer.Exit(UNSAID) from None


def complain(error: Exception, folder: Path, debug: bool, about: str = "") -> int:
    """Say in one sentence what went wrong, ``about`` which run, and return the exit code for it."""
    if debug:
        warn("".join(traceback.format_exception(error)).rstrip())
    warn(f"error: {about}{printable(sentence(error, folder))}")
    return exit_code(error)


def interruption(stop: BaseException, *folders: Path) -> str:
    """Say where the run was interrupted, and how to go on with all that were begun."""
    begun = [folder for folder in folders if (folder / CONFIG).is_file()]
    cut = [folder for folder in begun if not (folder / RESULT).is_file()] or begun
    if not cut:
        return "interrupted before the run began: nothing was saved"
    where = f": {stop}; the state is saved" if isinstance(stop, InterruptedRunError) else ""
    not_begun = [shlex.quote(str(folder)) for folder in folders if folder not in begun]
    rest = [f"not begun: {', '.join(not_begun)}"] if not_begun else []
    return "\n".join([f"interrupted{where}", *map(how_to_resume, cut), *rest])


def sentence(error: Exception, folder: Path) -> str:
    """Say what went wrong, and what can be done where that is known."""
    if isinstance(error, OSError) and error.strerror is not None:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        begun = any(folder.glob("checkpoint-*")) if folder.is_dir() else False
        return f"{what}; once that is mended, {how_to_resume(folder)}" if begun else what
    if isinstance(error, ValueError | TypeError | OSError | RuntimeError):
        return str(error)
    return f"{type(error).__name__}: {error} (this is a defect of ucb; --debug shows where it is)"


def exit_code(error: Exception) -> int:
    """Tell wrong usage from a failure."""
    wrong_usage = ValueError | TypeError | FileExistsError | FileNotFoundError
    return WRONG_USAGE if isinstance(error, wrong_usage) else FAILED


def how_to_resume(folder: Path) -> str:
    """Name the command that goes on with a run."""
    return f"go on with: ucb resume {shlex.quote(str(folder))}"


def warn(line: str) -> None:
    """Print a line where errors go: a terminal gets it wrapped between words, a file as it is."""
    with suppress(OSError):  # there is nobody left to tell
        errors.print(line, highlight=False, markup=False, emoji=False, soft_wrap=not errors.is_terminal)
