"""How large the package is, and how many of its files a command walks through: ``python -m tools.measure_code``.

A line counts if it holds code: docstrings, comments and blank lines do not, imports do. A command walks through a file
if one of the file's functions runs while nothing is being imported.
"""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
TRACER = """
import sys, threading
source, importing, walked = sys.argv[1], threading.local(), set()

def follow(frame, event, argument):
    code = frame.f_code
    if code.co_name == "<module>":
        importing.depth = getattr(importing, "depth", 0) + {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and code.co_filename.startswith(source) and getattr(importing, "depth", 0) <= 0:
        walked.add(code.co_filename[len(source) + 1 :])

from ucb.cli.main import main

sys.argv = ["ucb", *sys.argv[2:]]
sys.setprofile(follow)
threading.setprofile(follow)
try:
    main()
except SystemExit as stop:
    status = stop.code
else:
    status = 0
sys.setprofile(None)
print("\\nWALKED", *sorted(walked), file=sys.__stdout__)
sys.exit(status)
"""


def files_of_the_package() -> list[Path]:
    """Return all Python files under src/."""
    return sorted(SOURCE.rglob("*.py"))


def count_lines(path: Path) -> int:
    """Count the lines of a file that hold code."""
    text = path.read_text()
    words: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            words.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - words)


def walk(*command: str) -> list[str]:
    """Run a command of ``ucb`` in a process of its own; return the files that it walks through."""
    arguments = [sys.executable, "-c", TRACER, str(SOURCE), *command]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.rpartition("WALKED")[2].split()


def walk_run(folder: Path) -> list[str]:
    """Return the files that a small ``ucb run`` walks through."""
    return walk(
        "run",
        "mnist-5split",
        "--method",
        "ucb",
        "--tasks",
        "1",
        "--epochs",
        "1",
        "--hidden",
        "8",
        "--out",
        str(folder / "run"),
    )


def walk_learn(folder: Path) -> list[str]:
    """Return the files that ``ucb learn`` walks through with a small table."""
    table = folder / "table.csv"
    rows = (f"{i % 3 + 0.1 * (i % 7)},{i % 5},class {i % 3}" for i in range(60))
    table.write_text("\n".join(["a,b,label", *rows]) + "\n")
    return walk("learn", str(folder / "model.ucb"), str(table), "--label", "label")


def main() -> None:
    """Print the figures."""
    files = files_of_the_package()
    lines = {path: count_lines(path) for path in files}
    print(f"{len(files)} files, {sum(lines.values())} lines of code, the longest file has", end=" ")
    print(f"{max(path.read_text().count(chr(10)) for path in files)} lines in all")
    with tempfile.TemporaryDirectory() as folder:
        for name, walked in ("ucb run", walk_run(Path(folder))), ("ucb learn", walk_learn(Path(folder))):
            print(f"{name} walks through {len(walked)} files")


if __name__ == "__main__":
    main()
