"""A table of ours as text, Markdown, CSV, LaTeX or JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files

from ucb.experiments.reproduce.compare import ABOVE, BELOW, RULE, WITHIN, ComparedRow, Measure
from ucb.experiments.reproduce.definitions import ReproducedTable

HEADS = ("the paper's row", "ours", "seeds", "ACC", "BWT", "paper ACC", "paper BWT", "difference", "")


def text(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return plain aligned columns; below them what the verdicts mean, and the notes."""
    rows, notes = _cells(lines)
    widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
    signs = "<<" + ">" * (len(HEADS) - 3) + "<"  # figures stand at the right
    aligned = [
        "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True))
        for row in [HEADS, ["-" * width for width in widths], *rows]
    ]
    rule = ["", RULE] if any(line.verdict in (WITHIN, ABOVE, BELOW) for line in lines) else []
    body = [f"{table.id}: {table.about}", "", *(line.rstrip() for line in aligned), *rule, *_below(notes)]
    return "\n".join(body) + "\n"


def markdown(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return a table in Markdown, with notes below."""
    rows, notes = _cells(lines)
    rows = [[title, f"`{name}`", *figures] for title, name, *figures in rows]
    rows = [[cell.replace("|", r"\|") for cell in row] for row in [HEADS, ["---"] * len(HEADS), *rows]]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), *_below(notes)]) + "\n"


def latex(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return a tabular, with notes in small print below."""
    rows, notes = _cells(lines)
    tabular = [" & ".join(map(_for_latex, row)) + r" \\" for row in [[*HEADS[:-1], "verdict"], *rows]]
    body = [r"% This table needs \usepackage{booktabs}.", r"\begin{tabular}{llrrrrrrl}", r"\toprule"]
    body += [tabular[0], r"\midrule", *tabular[1:], r"\bottomrule", r"\end{tabular}"]
    if notes:
        small = (_for_latex(f"({number}) {note}") for number, note in enumerate(notes, 1))
        body += [r"\par\smallskip", *(rf"{{\footnotesize\noindent {note}\par}}" for note in small)]
    return "\n".join(body) + "\n"


def comma_separated(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return every figure in a column of its own, unrounded."""
    written = io.StringIO()
    rows = [flat(table, line) for line in lines]
    writer = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def as_json(table: ReproducedTable, lines: Sequence[ComparedRow]) -> str:
    """Return everything as one JSON object."""
    rows = [{**dataclasses.asdict(line), "difference": line.difference} for line in lines]
    return json.dumps({"table": table.id, "about": table.about, "rows": rows}, indent=1) + "\n"


FORMATS: dict[str, Callable[[ReproducedTable, Sequence[ComparedRow]], str]] = {
    "text": text,
    "md": markdown,
    "csv": comma_separated,
    "tex": latex,
    "json": as_json,
}


def flat(table: ReproducedTable, line: ComparedRow) -> dict[str, object]:
    """Return a line with a name for every number."""
    found: dict[str, object] = {"table": table.id, "paper_row": line.paper_row, "row": line.name}
    found |= {"method": line.method, "seeds": len(line.seeds)}
    for name in ("acc", "bwt", "paper_acc", "paper_bwt"):
        measure: Measure | None = getattr(line, name)
        found[name] = measure and measure.value
        found[f"{name}_spread"] = measure and measure.spread
    found |= {"difference": line.difference, "verdict": line.verdict}
    return found | {"weights": line.weights, "stored_values": line.stored_values, "notes": "; ".join(line.notes)}


def _cells(lines: Sequence[ComparedRow]) -> tuple[list[list[str]], list[str]]:
    """Return the cells of each line as words, and the notes that their numbers refer to."""
    notes = list(dict.fromkeys(note for line in lines for note in line.notes))
    rows = []
    for line in lines:
        marks = "".join(f" ({notes.index(note) + 1})" for note in line.notes)
        rows.append(
            [
                line.paper_row or "-",
                line.name,
                str(len(line.seeds)),
                _figure(line.acc),
                _figure(line.bwt, "+z"),
                _figure(line.paper_acc),
                _figure(line.paper_bwt, "+z"),
                "-" if line.difference is None else f"{line.difference:+z.2f}",
                f"{line.verdict}{marks}".strip(),
            ]
        )
    return rows, notes


def _figure(measure: Measure | None, sign: str = "") -> str:
    if measure is None:
        return "-"
    return f"{measure.value:{sign}.{measure.digits}f}" + ("" if measure.spread is None else f" +- {measure.spread:.2f}")


def _below(notes: Sequence[str]) -> list[str]:
    return ["", *(f"({number}) {note}" for number, note in enumerate(notes, 1))] if notes else []


LATEX = tomllib.loads((files("ucb.experiments.reproduce") / "latex.toml").read_text())
"""How LaTeX writes what it would misread: ``in_maths`` has patterns, ``escaped`` single characters."""
SPECIAL = re.compile("|".join([*(f"({pattern})" for pattern in LATEX["in_maths"]), *map(re.escape, LATEX["escaped"])]))


def _for_latex(cell: str) -> str:
    def write(found: re.Match[str]) -> str:
        if found.lastindex is None:
            return str(LATEX["escaped"][found[0]])
        return str([*LATEX["in_maths"].values()][found.lastindex - 1]).replace("{}", found[0])

    return "--" if cell == "-" else SPECIAL.sub(write, cell)
