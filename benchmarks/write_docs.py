"""Put what was measured into the documents, between the markers that name it.

<!-- figures: NAME --> ... <!-- end --> is a step's benchmark (results/bench/NAME.json), <!-- table: NAME --> a table of
:mod:`method_tables`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from method_tables import TABLES
from step import summary

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "docs" / name for name in ("performance.md", "methods.md")]


def written(text: str) -> str:
    """Return the document with every marked block made anew from its result files."""

    def block(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        made = TABLES[name]() if kind == "table" else figures(name)
        return f"<!-- {kind}: {name} -->\n{made}\n<!-- end -->"

    return re.sub(r"<!-- (figures|table): (\S+) -->.*?<!-- end -->", block, text, flags=re.DOTALL)


def figures(name: str) -> str:
    """Return the summary of a step's benchmark."""
    return summary(json.loads((ROOT / "results" / "bench" / f"{name}.json").read_text()))


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(written(document.read_text()))
