"""Figures as a program or a person wants them: JSON that anything can read, sizes, and text for any terminal."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from ucb.cli.terminal import write


def print_json(facts: Any) -> None:
    """Print JSON: names as they are where they can be written, and never NaN, which is no JSON."""
    try:
        text = json.dumps(facts, ensure_ascii=False, indent=1, allow_nan=False)
    except ValueError:
        raise RuntimeError("the model's figures are no numbers: its file is damaged") from None
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(facts, indent=1)
    write(text + "\n")


def size(number: int) -> str:
    """Return a number of bytes in words."""
    for unit, name in (1_000_000, "MB"), (1000, "kB"):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number} bytes"


def write_whatever_comes() -> None:
    """Let a character that the terminal or the file cannot take be written as a code, instead of failing."""
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
