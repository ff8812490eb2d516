"""Put the figures of results/bench into docs/performance.md, between the markers that name them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from step import summary

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"


def written(text: str) -> str:
    """Return the document with every block <!-- figures: NAME --> ... <!-- end --> made anew from its result file."""

    def block(match: re.Match[str]) -> str:
        result = json.loads((ROOT / "results" / "bench" / f"{match[1]}.json").read_text())
        return f"<!-- figures: {match[1]} -->\n{summary(result)}\n<!-- end -->"

    return re.sub(r"<!-- figures: (\S+) -->.*?<!-- end -->", block, text, flags=re.DOTALL)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
