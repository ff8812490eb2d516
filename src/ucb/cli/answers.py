"""The answers of `ucb predict` as text, JSON or CSV, printed as they come: no more than one row is held here."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from rich.cells import cell_len

from ucb.cli.terminal import escape, format_json, say, write

FORMULA = re.compile(r"[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WORDS = {True: "true", False: "false"}
"""Of JSON; CSV and text have the same."""
Answer = dict[str, Any]


def print_answers(rows: Iterable[Answer], form: str, files: Iterable[str] = (), labels: Iterable[str] = ()) -> int:
    """Print answers, and return how many there were; of none nothing is printed.

    ``files`` and ``labels`` are all that can come: columns of text are as wide as the longest of them.
    """
    number = {"json": _print_json, "csv": _print_csv, "text": _Columns(files, labels).print}[form](rows)
    sys.stdout.flush()  # if it cannot be written, the command fails
    return number


def _print_json(rows: Iterable[Answer]) -> int:
    """Print a list as `print_json` would print all of it."""
    number = 0
    for number, row in enumerate(rows, 1):
        write(("[" if number == 1 else ",") + "\n " + format_json(row).replace("\n", "\n "))
    if number:
        write("\n]\n")
    return number


def _print_csv(rows: Iterable[Answer]) -> int:
    number = 0
    # With its own end of lines, and no other, the writer puts quotes around every kind of break inside a cell.
    writer = csv.writer(SimpleNamespace(write=lambda line: write(line.removesuffix("\r\n") + "\n")))
    for number, row in enumerate(rows, 1):
        flat = _flatten(row)
        if number == 1:
            writer.writerow(flat)
        writer.writerow(map(_cell, flat.values()))
    return number


def _flatten(row: Answer) -> Answer:
    """Return a row without lists: the most probable labels and the probabilities of all have columns of their own."""
    flat = {name: value for name, value in row.items() if name not in ("top", "probabilities")}
    for place, each in enumerate(row.get("top", ()), 1):
        flat |= {f"{name}_{place}": value for name, value in each.items()}
    return flat | {f"probability:{label}": value for label, value in row.get("probabilities", {}).items()}


def _cell(value: Any) -> Any:
    """Return a text that no spreadsheet takes for a formula: an apostrophe says that it is none. Numbers stay."""
    if isinstance(value, bool):
        return WORDS[value]
    is_formula = isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


class _Columns:
    """Text in columns, each below its name."""

    def __init__(self, files: Iterable[str], labels: Iterable[str]) -> None:
        self.file, self.label = (max(map(_width, texts), default=1) for texts in (files, labels))

    def print(self, rows: Iterable[Answer]) -> int:
        number = 0
        for number, row in enumerate(rows, 1):
            cells = self._cells(row)
            if number == 1:
                say(_join((head, head, width) for head, _, width in cells))
            say(_join(cells))
        return number

    def _cells(self, row: Answer) -> list[tuple[str, str, int]]:
        """Return the name of each column, what stands in it, and its least width: below 0 where it is aligned right."""
        found = [("file", row["file"], self.file), ("label", row["label"], self.label)]
        found.append(("probability", _percent(row["probability"]), -1))
        found += [(name.replace("_", " "), f"{row[name]:.3f}", -1) for name in ("entropy", "mutual_information")]
        found += [("doubt", f"{row['doubt']:.2f}", -6), ("unsure", WORDS[row["unsure"]], 1)]
        for place, each in enumerate(row.get("top", ())[1:], 2):
            found += [(f"label {place}", each["label"], self.label)]
            found += [(f"probability {place}", _percent(each["probability"]), -1)]
        return found + [(label, _percent(value), -8) for label, value in row.get("probabilities", {}).items()]


def _width(text: str) -> int:
    return cell_len(escape(text))


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _join(cells: Iterable[tuple[str, str, int]]) -> str:
    """Return a line of cells."""
    parts = []
    for head, text, width in cells:
        blank = " " * (max(abs(width), _width(head)) - _width(text))
        parts.append(escape(text) + blank if width > 0 else blank + escape(text))
    return "  ".join(parts).rstrip()
