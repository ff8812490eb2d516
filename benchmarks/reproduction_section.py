"""One table of ours as a section of docs/reproduction.md: figures, what matches, how to repeat it, on what machine."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduction_settings import others_now, runs_of, settings_table, tuning_commands
from ucb.reproduce import FORMATS, Line, Table
from ucb.reproduce.compare import ABOVE, BELOW, CANNOT, NOT_MEASURED, WITHIN
from ucb.reproduce.definitions import QUOTED

WIDTH = 120


def section(table: Table, lines: Sequence[Line], results: Path) -> str:
    """Return all that is known of a table."""
    parts = [
        f"## {capital(table.about)}",
        wrapped(f"Table `{table.id}`. {seeds(lines)}"),
        FORMATS["md"](table, lines).strip(),
        wrapped(verdicts(table, lines)),
        wrapped(
            "To repeat it. What is there is not run again; to begin anew, move "
            f"{homes(table)} away, and give `ucb reproduce` an `--out FOLDER` and `ucb table` the same "
            "`--results FOLDER`. A search goes on from the trials in `results/tuning`; to search anew, move them away."
        ),
        commands(table, results),
    ]
    if list(runs_of(table, results)):
        parts += ["The settings:", settings_table(table, results)]
    parts += [
        wrapped(said) for said in (*others_now(table, results), *elsewhere(table, lines), *machines(table, results))
    ]
    return "\n\n".join(parts)


def homes(table: Table) -> str:
    """Return the folders of all runs that a table shows."""
    others = dict.fromkeys(row.same_as.split("/")[0] for row in table.rows if row.same_as)
    return " and ".join(f"`runs/tables/{name}`" for name in (table.id, *others))


def seeds(lines: Sequence[Line]) -> str:
    """Say how many seeds the figures have."""
    measured = [line for line in lines if line.seeds]
    most = max(len(line.seeds) for line in measured)
    fewer = [f"`{line.name}` has {len(line.seeds)}" for line in measured if len(line.seeds) < most]
    whose = "Every measured row has" if not fewer else "Measured rows have"
    said = f"{whose} {most} seed{'' if most == 1 else 's'}" + (f", but {', '.join(fewer)}" if fewer else "")
    missing = sum(line.verdict == NOT_MEASURED for line in lines)
    return f"{said}." + (f" Not measured yet: {missing} of {len(lines)} rows." if missing else "")


def verdicts(table: Table, lines: Sequence[Line]) -> str:
    """Say which rows agree with the paper's figure, which are above it and which below, and the known reason."""
    beside = [line for line in lines if line.paper_acc is not None]
    measured = [line for line in beside if line.acc is not None]
    sentences = [f"{len(beside)} rows stand beside a figure of the paper's, and {len(measured)} of them are measured."]
    if agreeing := [line for line in measured if line.verdict == WITHIN]:
        sentences.append(f"Within: {listed(agreeing)}.")
    if higher := [line for line in measured if line.verdict == ABOVE]:
        sentences.append(f"Above: {', '.join(f'`{line.name}` ({line.difference:+.2f})' for line in higher)}.")
    reasons: dict[str, list[str]] = {}
    for line in measured:
        if line.verdict == BELOW:
            row = table.row(line.name)
            reason = row.note or (QUOTED if row.quoted else "no reason is known")
            reasons.setdefault(reason, []).append(f"`{line.name}` ({line.difference:+.2f})")
    sentences += [f"Below: {', '.join(names)}: {reason}." for reason, names in reasons.items()]
    sentences += [f"Cannot be run: `{line.name}` ({line.notes[-1]})." for line in lines if line.verdict == CANNOT]
    return " ".join(sentences)


def commands(table: Table, results: Path) -> str:
    """Return what to type."""
    ours = [f"ucb reproduce {table.id} --device cuda", f"ucb table {table.id}"]
    return "\n".join(["```sh", *tuning_commands(table, results), *ours, "```"])


def elsewhere(table: Table, lines: Sequence[Line]) -> list[str]:
    """Say which rows show the runs of other tables."""
    names = {line.name for line in lines if line.seeds}
    there = [f"`{row.name}` ({row.same_as})" for row in table.rows if row.same_as and row.name in names]
    return [f"Rows that show the runs of other tables: {', '.join(there)}."] if there else []


def machines(table: Table, results: Path) -> list[str]:
    """Say where and how long the runs ran."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for _, found in runs_of(table, results):
        for result in found:
            versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
            groups.setdefault(f"{result['device']} ({versions})", []).append(result)
    return [f"{ran(found)} on {machine}.{in_company(found)}" for machine, found in groups.items()]


def in_company(found: Sequence[dict[str, Any]]) -> str:
    """Say how many runs shared their device: their times are not those of a run alone."""
    shared = sum(result.get("beside", 0) != 0 for result in found)
    return f" {shared} of them shared it with others, and would have taken less time alone." if shared else ""


def ran(found: Sequence[dict[str, Any]]) -> str:
    """Say how many runs there were and how long they took."""
    times = [result["seconds"] for result in found]
    if len(times) == 1:
        return f"1 run of {duration(times[0])}"
    shortest, longest = duration(min(times)), duration(max(times))
    each = f"{shortest} each" if shortest == longest else f"{shortest} to {longest}"
    return f"{len(times)} runs of {each}, together {duration(sum(times))},"


def duration(seconds: float) -> str:
    """Return a time in words."""
    unit, name = next(
        (unit, name) for unit, name in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= 2 * unit or unit == 1
    )
    return f"{seconds / unit:.{1 if unit == 3600 else 0}f} {name}"


def capital(text: str) -> str:
    """Return a text with a capital letter at its beginning."""
    return text[0].upper() + text[1:]


def listed(lines: Sequence[Line]) -> str:
    """Return the names of rows."""
    return ", ".join(f"`{line.name}`" for line in lines)


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph in lines that are not too long."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
