"""Run what docs/learn-from-your-data.md says, in a fresh folder, and picture what the commands print.

    python benchmarks/picture_waves.py

A block of commands (```sh) that a picture follows, ![...](images/NAME.svg), becomes that picture: each command and its
real output. The block ```python that begins with "# NAME.py" is written to that file; other ones are run. It takes a
few minutes on two cores.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

PAGE = Path(__file__).parent.parent / "docs" / "learn-from-your-data.md"
WIDTH = 104
FRAME = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fonts that a picture would fetch from elsewhere: the reader's own serve as well."""


class Block(NamedTuple):
    """A piece of the page that can be run, and the picture that shows what it prints."""

    kind: str
    text: str
    picture: str | None


def blocks(page: str) -> list[Block]:
    """Return what can be run, in its order."""
    found = re.findall(r"```(sh|python)\n(.*?)```(?:\s*!\[[^]]*\]\(images/(\S+?\.svg)\))?", page, re.DOTALL)
    return [Block(kind, text, picture or None) for kind, text, picture in found]


def run(block: Block, folder: Path) -> str:
    """Run a block in ``folder``, and return what it prints; commands stand before their output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "BASH_XTRACEFD": "1"}
    words = [sys.executable, "-W", "error", "-c", block.text]
    if name := re.match(r"# (\w+\.py)", block.text):
        (folder / name[1]).write_text(block.text)
        return ""
    if block.kind == "sh":
        words = ["bash", "-e", "-c", f"PS4='$ '\nset -x\n{block.text}"]
    done = subprocess.run(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def picture(output: str, path: Path) -> None:
    """Write lines of a terminal as an SVG file."""
    lines = [line for line in output.splitlines() if not line.startswith("$ for ")]
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for line in [*lines, ""]:
            console.print(Text(line, style="bold green" if line.startswith("$ ") else ""))
        svg = console.export_svg(title="ucb", unique_id=path.stem)
    path.write_text(FRAME.sub("", svg).replace("Fira Code, monospace", "monospace"))


def main() -> None:
    """Run the whole page."""
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks(PAGE.read_text()):
            output = run(block, Path(folder))
            print(output, flush=True)
            if block.picture:
                picture(output, PAGE.parent / "images" / block.picture)


if __name__ == "__main__":
    main()
