"""Put what was measured into the documents, between the markers that name it.

<!-- figures: NAME --> ... <!-- end --> is what `ucb bench` found (results/bench/NAME.json), <!-- table: NAME --> a
table of :mod:`method_tables`. A GPU is not everywhere: without its result file, what the document says of it stays.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from method_tables import TABLES
from ucb.bench import markdown

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "docs" / name for name in ("performance.md", "methods.md", "data.md")]
ON_A_GPU = "step-gpu"


def written(text: str) -> str:
    """Return the document with every marked block made anew from its result files."""

    def block(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if name == ON_A_GPU and not result_file(name).exists():
            return match[0]
        made = TABLES[name]() if kind == "table" else figures(name)
        return f"<!-- {kind}: {name} -->\n{made}\n<!-- end -->"

    return re.sub(r"<!-- (figures|table): (\S+) -->.*?<!-- end -->", block, text, flags=re.DOTALL)


def figures(name: str) -> str:
    """Return the summary of a step's benchmark."""
    return markdown(json.loads(result_file(name).read_text()))


def result_file(name: str) -> Path:
    """Return where a benchmark's figures are kept."""
    return ROOT / "results" / "bench" / f"{name}.json"


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(written(document.read_text()))
