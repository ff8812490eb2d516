"""Files by pattern: ``*``, ``?``, ``[...]`` and ``**``, as a shell has them, for patterns that come quoted.

Python's own `glob` walks in circles where links do; here ``**`` follows no links to folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from ucb.waves.sources.walking import is_hidden
from ucb.waves.sources.words import one_form

ANY_DEPTH = "**"


def is_pattern(text: str) -> bool:
    """Whether a text has a character that stands for others."""
    return re.search(r"[*?\[]", text) is not None


def matching(pattern: str) -> list[str]:
    """Return the files and folders that a pattern names, each once, in order."""
    path = Path(pattern)
    parts = path.parts[1:] if path.anchor else path.parts
    return list(dict.fromkeys(_matching(path.anchor, list(parts))))


def _matching(base: str, parts: list[str]) -> Iterator[str]:
    if not parts:
        yield base
        return
    head, rest = parts[0], parts[1:]
    if head == ANY_DEPTH:
        for folder in _folders(base):
            if rest:
                yield from _matching(folder, rest)
            else:
                yield from filter(os.path.isfile, _inside(folder))
    elif is_pattern(head):
        for path in _inside(base, hidden=head.startswith(".")):
            if fnmatchcase(one_form(os.path.basename(path)), one_form(head)) and (not rest or os.path.isdir(path)):
                yield from _matching(path, rest)
    elif os.path.lexists(path := os.path.join(base, head)):
        yield from _matching(path, rest)


def _folders(base: str) -> Iterator[str]:
    """Return a folder and all below it."""
    waiting = [base]
    while waiting:
        yield (folder := waiting.pop())
        folders = [path for path in _inside(folder) if os.path.isdir(path) and not os.path.islink(path)]
        waiting += reversed(folders)


def _inside(folder: str, hidden: bool = False) -> list[str]:
    """Return what is in a folder; hidden names only where they are meant."""
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if hidden or not is_hidden(name)]
