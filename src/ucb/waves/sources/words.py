"""Names in any script, and sentences that hold them."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Sequence

MOST = 12
LONGEST = 40


def shown(name: str) -> str:
    """Return a file's name as text that can be written anywhere: bytes that are no text are shown as such."""
    try:
        name.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(name).decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # half a character, which no file's name can hold
            return name.encode("utf-8", "backslashreplace").decode()
    return name


def one_form(name: str) -> str:
    """Return the one form (NFC) of a name that can be written with composed or with separate accents."""
    return unicodedata.normalize("NFC", shown(name))


def short(text: str, most: int = LONGEST) -> str:
    """Return the beginning of a text that may be long, in one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}..."


def listed(names: Sequence[str]) -> str:
    """Return names in quotes; of many only the first."""
    quoted = [repr(short(name)) for name in names[:MOST]]
    if len(names) > MOST:
        return f"{', '.join(quoted)} and {len(names) - MOST} more"
    return ", ".join(quoted)


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its words: ``1 file is`` or ``2 files are``."""
    return f"{number:,} {one if number == 1 else many}"


def lonely(labels: Sequence[str]) -> list[str]:
    """Return a remark for each class that has a single example."""
    return [f"class {short(name)!r} has one example" for name, times in Counter(labels).items() if times == 1]
