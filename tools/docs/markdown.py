"""Parts of Markdown: tables, lists, and paragraphs in lines that are not too long."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

WIDTH = 120


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def wrap(text: str, indent: str = "") -> str:
    """Return a paragraph."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def bullets(*texts: str) -> str:
    """Return a list."""
    return "\n".join(wrap(f"- {text}", indent="  ") for text in texts)


def code(names: Iterable[str]) -> str:
    """Return names in the letters of code, with commas between."""
    return ", ".join(f"`{name}`" for name in names)


def capitalize(text: str) -> str:
    """Return a text with a capital letter at its beginning; the others stay."""
    return text[0].upper() + text[1:]
