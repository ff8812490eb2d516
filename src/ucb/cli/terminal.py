"""Names from somebody's file must not act on a terminal: it sees the codes of characters that would."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typer.core import TyperGroup


def printable(text: str) -> str:
    """Return a text as one line that may go to a terminal: what cannot be seen is written as a code."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Return a text whose lines stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def write(text: str) -> None:
    """Write a text for programs: a file gets it as it is, a terminal as it may."""
    sys.stdout.write(printable_lines(text) if sys.stdout.isatty() else text)


class Terminal(Console):
    """Prints nothing that a terminal would obey, but what Rich itself puts between the texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the pieces of what is printed. Every message comes through here, so none can forget it."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=printable_lines(piece.text))


class Commands(TyperGroup):
    """The commands, whose refusals of words they do not know are printable too."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options before the command."""
        with _printable_refusals():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the rest, and answer."""
        with _printable_refusals():
            return super().invoke(ctx)


@contextmanager
def _printable_refusals() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = printable(message)  # type: ignore[attr-defined]
        raise
