"""All printing: text, tables and JSON that any terminal, file or program can take.

Names that come from a user's files must not control the terminal: characters that could are written as codes.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

WIDE = 200
"""Columns of a table that a file gets."""


def escape(text: str) -> str:
    """Return a text as one line that is safe on a terminal: characters that cannot be seen are written as codes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escape_lines(text: str) -> str:
    """Return a text that is safe on a terminal, with its line breaks."""
    return "\n".join(map(escape, text.split("\n")))


class Terminal(Console):
    """Prints nothing that a terminal would obey, except what Rich itself puts between the texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the pieces of what is printed. Every message comes through here, so none can forget it."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=escape_lines(piece.text))


console, errors = Terminal(), Terminal(stderr=True)


def say(line: str) -> None:
    """Print a line: a terminal gets it wrapped between words, a file as it is."""
    _print_line(console, line)


def warn(line: str) -> None:
    """Print a line on standard error."""
    with suppress(OSError):  # standard error is closed: there is no other place to say it
        _print_line(errors, line)


def _print_line(where: Console, line: str) -> None:
    where.print(line, highlight=False, markup=False, emoji=False, soft_wrap=not where.is_terminal)


def write(text: str) -> None:
    """Write a text for programs: a file gets it as it is, a terminal without what it would obey."""
    sys.stdout.write(escape_lines(text) if sys.stdout.isatty() else text)


def print_json(facts: Any) -> None:
    """Print JSON, all of it, or raise."""
    write(format_json(facts) + "\n")
    sys.stdout.flush()


def format_json(facts: Any) -> str:
    """Return JSON: names as they are where they can be written, and never NaN, which JSON does not have."""
    try:
        text = json.dumps(facts, ensure_ascii=False, indent=1, allow_nan=False)
    except ValueError:
        raise RuntimeError("the model's figures are not finite numbers: its file is damaged") from None
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(facts, indent=1)
    return text


def escape_what_cannot_be_written() -> None:
    """Write a character that the terminal's or the file's encoding lacks as a code, instead of failing."""
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def format_bytes(number: int) -> str:
    """Return a number of bytes with its unit."""
    for unit, name in (1_000_000, "MB"), (1000, "kB"):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} bytes"


def format_count(number: int, one: str, many: str) -> str:
    """Return a number with its words: ``1 file is`` or ``2 files are``."""
    return f"{number:,} {one if number == 1 else many}"


def make_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str] = (), wrap: Collection[str] = ()
) -> Table:
    """Return a table. The first column and those in ``left`` are aligned left; those in ``wrap`` may take two lines."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for place, head in enumerate(heads):
        justify = "left" if place == 0 or head in left else "right"
        table.add_column(Text(escape(head)), justify=justify, no_wrap=head not in wrap)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(escape(cell)) for cell in row))
    return table


def print_table(table: Table, width: int | None = None) -> None:
    """Print a table; a file gets it at most ``width`` columns wide, without blanks at the ends of its lines."""
    if console.is_terminal:
        console.print(table, highlight=False)
        return
    written = io.StringIO()
    Console(file=written, width=width or console.width).print(table, highlight=False)
    for line in written.getvalue().splitlines():
        say(line.rstrip())


def print_names(about: Mapping[str, str]) -> None:
    """Print names, and what each of them is."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, what in about.items():
        table.add_row(Text(escape(name)), Text(what))
    print_table(table)


def fits(table: Table) -> bool:
    """Whether the terminal is wide enough for a table."""
    unlimited = console.options.update(width=10_000)
    return Measurement.get(console, unlimited, table).maximum <= console.width
