"""Documents in which what was measured stands between markers that name it.

<!-- figures: NAME --> ... <!-- end --> is what `ucb bench` or benchmarks/peers.py found (results/bench/NAME.json),
<!-- runs: NAME --> what benchmarks/gpu_runs.py found, <!-- table: NAME --> a table of :mod:`method_tables`,
:mod:`wave_tables` or :mod:`reproduction_rivals`. A GPU is not everywhere: without its result files, what the document
says of it stays. docs/reproduction.md is written as a whole (:mod:`reproduction_page`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from tools.docs import method_tables, wave_tables
from tools.docs.markdown import table
from tools.docs.reproduction_rivals import headline
from ucb.experiments.bench.results import groups_of, remarks

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "docs" / name for name in ("performance.md", "methods.md", "data.md", "learn-from-your-data.md")]
DOCUMENTS.append(ROOT / "README.md")
TABLES: dict[str, Callable[[], str]] = {**method_tables.TABLES, **wave_tables.TABLES, "headline": headline}
ON_A_GPU = ("step-gpu", "runs-gpu", "runs-gpu-second-host")


def rewrite(text: str) -> str:
    """Return the document with every marked block made anew from its result files."""

    def block(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if name in ON_A_GPU and not result_file(name).exists():
            return match[0]
        made = TABLES[name]() if kind == "table" else runs(name) if kind == "runs" else figures(name)
        return f"<!-- {kind}: {name} -->\n{made}\n<!-- end -->"

    return re.sub(r"<!-- (figures|runs|table): (\S+) -->.*?<!-- end -->", block, text, flags=re.DOTALL)


def figures(name: str) -> str:
    """Return all that a benchmark of a step says."""
    result = json.loads(result_file(name).read_text())
    parts = [(title, table(heads, rows)) for title, (heads, rows) in groups_of(result)]
    shown = [f"{title}:\n\n{cells}" if "nets" in result else cells for title, cells in parts]
    return "\n\n".join([*shown, "\n".join(remarks(result))])


def runs(name: str) -> str:
    """Return what whole runs cost: the parts that were measured."""
    found = json.loads(result_file(name).read_text())
    parts = {"5-Split MNIST": seeds_part, "precision": precision_part, "many tasks": tasks_part}
    blocks = [part(found[key]) for key, part in parts.items() if key in found]
    return "\n\n".join([*blocks, f"Machine: {found['device']}."])


def seeds_part(kinds: dict[str, Any]) -> str:
    """Return the table of seeds in a row and side by side."""
    lines = [
        "| 5-Split MNIST | one run | three in a row | three side by side | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, seconds in kinds.items():
        times = (f"{median(seconds[part]):.2f} s" for part in ("one", "in a row", "side by side"))
        lines.append(f"| {kind} | {' | '.join(times)} | {seconds['ratio']:.2f} |")
    apart = max(seconds["ACC differs by"] for seconds in kinds.values())
    return "\n".join([*lines, "", f"A seed's ACC side by side differs from that alone by {apart:.2f} at most."])


def precision_part(precisions: dict[str, Any]) -> str:
    """Return the table of what runs know under each precision."""
    lines = ["| precision | ACC | BWT |", "| --- | --- | --- |"]
    for precision, three in precisions.items():
        figures = (f"{mean(three[part]):.2f} +- {stdev(three[part]):.2f}" for part in ("acc", "bwt"))
        lines.append(f"| {precision} | {' | '.join(figures)} |")
    return "\n".join(lines)


def tasks_part(found: dict[str, Any]) -> str:
    """Return the sentences about many tasks."""
    tasks, compared = len(found["seconds"]), found["in turns"]
    turns, ratios = len(compared[0]["early"]), ", ".join(f"{each['late / early']:.3f}" for each in compared)
    early, late = (median(second for each in compared for second in each[when]) for when in ("early", "late"))
    epochs = len(found["held"]) // tasks
    second, last = slice(epochs, 2 * epochs), slice(-epochs, None)
    used, held = ([max(found[which][task]) / 1e6 for task in (second, last)] for which in ("in use", "held"))
    return (
        f"{tasks} permuted tasks, {epochs} epochs each, evaluation apart. A young run, at tasks 2 to {turns + 1}, and "
        f"an old one, at the last {turns}, take turns: a task takes {early:.3f} s and {late:.3f} s (medians); pair by "
        f"pair, old to young is {ratios} (medians of {len(compared)} repeats). In task 2 and in the last, at most "
        f"{used[0]:.0f} and {used[1]:.0f} MB are in use, and PyTorch holds {held[0]:.0f} and {held[1]:.0f} MB."
    )


def result_file(name: str) -> Path:
    """Return where a benchmark's figures are kept."""
    return ROOT / "results" / "bench" / f"{name}.json"
