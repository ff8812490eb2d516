"""What every command has: options that several share, and errors that become one sentence and an exit code.

0: done. 1: failed. 2: wrong usage. 3: done and not to be repeated, but the result could not be printed. 130:
interrupted, with the state saved.

Nothing here loads PyTorch, nor do the modules with the commands: `ucb --help` must answer at once. A command imports
what it works with when it runs.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

import ucb
from ucb.cli.terminal import escape, escape_what_cannot_be_written, say, warn

FAILED, WRONG_USAGE, UNPRINTED, INTERRUPTED = 1, 2, 3, 130
Device = Annotated[str, Option(help="Where to compute: cpu, cuda or cuda:N.")]
Debug = Annotated[bool, Option("--debug", help="Show the whole traceback of an error.")]
"""Every command takes it, and ``Command`` reads it."""


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"ucb {ucb.__version__}")
        raise typer.Exit


def read_options(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Read the options that stand before the command."""
    escape_what_cannot_be_written()
    context.obj = debug


def complete(module: str, name: str) -> Callable[[str], list[str]]:
    """Return what completes one of the names that a module lists; only then is the module loaded."""

    def complete_word(begun: str) -> list[str]:
        known = getattr(import_module(module), name)
        return [each for each in (known() if callable(known) else known) if each.startswith(begun)]

    return complete_word


class Command(TyperCommand):
    """A command whose errors become one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. ``--debug`` may stand before it as well."""
        debug = bool(ctx.params.get("debug") or ctx.obj)
        if "debug" in ctx.params:
            ctx.params["debug"] = debug
        try:
            with explain_interrupt(lambda _: "interrupted"):
                return super().invoke(ctx)
        except typer.Exit:
            raise
        except Exception as error:
            raise typer.Exit(complain(error, debug)) from None


class Commands(TyperGroup):
    """A group of commands; what it says of words that it does not know is printable, too."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options before the command."""
        with _escape_refusals():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the rest, and run the command."""
        with _escape_refusals():
            return super().invoke(ctx)


@contextmanager
def _escape_refusals() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        message, is_help = getattr(error, "message", None), type(error).__name__ == "NoArgsIsHelpError"
        if isinstance(message, str) and not is_help:  # the help is ours, and has lines
            error.message = escape(message)  # type: ignore[attr-defined]
        raise


@contextmanager
def explain_interrupt(explain: Callable[[BaseException], str]) -> Iterator[None]:
    """Answer Ctrl-C with a sentence that says what is kept and how to go on."""
    try:
        yield
    except typer.Exit:
        raise
    except BaseException as stop:
        if not isinstance(stop, KeyboardInterrupt):
            from ucb.engine import InterruptedRunError

            if not isinstance(stop, InterruptedRunError):
                raise
        warn(explain(stop))
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def say_done_at_least(done: str) -> Iterator[None]:
    """Print the result of work; if it cannot be printed, say on standard error that the work is ``done``."""
    try:
        yield
    except (OSError, SystemExit) as error:  # Rich exits where nobody reads any more
        if isinstance(error, OSError) and error.filename:
            raise
        why = error.strerror if isinstance(error, OSError) else "nobody reads it"
        warn(f"{done}; its report cannot be printed: {why}")
        raise typer.Exit(UNPRINTED) from None


def complain(error: Exception, debug: bool, about: str = "") -> int:
    """Say in one sentence what went wrong, ``about`` which run, and return the exit code for it."""
    if debug:
        warn("".join(traceback.format_exception(error)).rstrip())
    warn(f"error: {about}{escape(describe(error))}")
    wrong_usage = ValueError | TypeError | FileExistsError | FileNotFoundError
    return WRONG_USAGE if isinstance(error, wrong_usage) else FAILED


def describe(error: Exception) -> str:
    """Say what went wrong, and after it the error's notes: what can be done about it."""
    if isinstance(error, OSError) and error.strerror is not None:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, ValueError | TypeError | OSError | RuntimeError):
        what = str(error)
    else:
        what = f"{type(error).__name__}: {error} (this is a defect of ucb; --debug shows where it is)"
    return "; ".join([what, *getattr(error, "__notes__", [])])
