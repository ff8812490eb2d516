"""One table of ours as a section of docs/reproduction.md: figures, what matches, how to repeat it, on what machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.docs.markdown import capitalize, code, wrap
from tools.docs.reproduction_settings import changed_settings, runs_of, settings_table, tuning_commands
from tools.docs.wave_tables import pretrained_tasks
from ucb.experiments.reproduce.compare import ABOVE, BELOW, CANNOT, FORMATS, NOT_MEASURED, QUOTED, WITHIN, ComparedRow
from ucb.experiments.reproduce.definitions import ReproducedTable

NO_REASON = "no reason is known"


def section(table: ReproducedTable, lines: Sequence[ComparedRow], results: Path) -> str:
    """Return all that is known of a table."""
    parts = [
        f"## {capitalize(table.about)}",
        wrap(f"Table `{table.id}`. {describe_seeds(count_seeds(lines))}"),
        FORMATS["md"](table, lines).strip(),
        wrap(describe_verdicts(sort_verdicts(table, lines))),
        *(describe_pretrained(results) if table.id == "single-head" else ()),
        wrap(
            "To repeat it. What is there is not run again; to begin anew, move "
            f"{' and '.join(f'`{folder}`' for folder in run_folders(table))} away, and give `ucb reproduce` an `--out "
            "FOLDER` and `ucb table` the same `--results FOLDER`. A search goes on from the trials in "
            "`results/tuning`; to search anew, move them away."
        ),
        "\n".join(["```sh", *commands(table, results), "```"]),
    ]
    if list(runs_of(table, results)):
        parts += ["The settings:", settings_table(table, results)]
    for name, differs in changed_settings(table, results).items():
        parts.append(wrap(f"`{name}` was measured with other settings than it would have now: {'; '.join(differs)}."))
    if there := borrowed_rows(table, lines):
        names = ", ".join(f"`{name}` ({whose})" for name, whose in there.items())
        parts.append(wrap(f"Rows that show the runs of other tables: {names}."))
    for machine, found in runs_by_machine(table, results).items():
        parts.append(wrap(f"{describe_runs(found)} on {machine}.{describe_company(found)}"))
    return "\n\n".join(parts)


def describe_pretrained(results: Path) -> Iterator[str]:
    """Yield what an exact head on a pretrained trunk gives on the streams of images, if that was measured."""
    if rows := pretrained_tasks(results):
        yield wrap(
            "**Pretrained.** `ucb learn` puts the same conjugate head on EfficientNet-lite0, which was trained on "
            "ImageNet ([benchmarks/pretrained_tasks.py](../benchmarks/pretrained_tasks.py)). That is no comparison of "
            "like with like, since the paper's nets begin with random weights: it says what someone with photographs "
            "gets today. BWT counts what each task loses because later ones bring more classes to choose from."
        )
        yield rows


def run_folders(table: ReproducedTable) -> list[str]:
    """Return the folders of all runs that a table shows."""
    others = dict.fromkeys(row.same_as.split("/")[0] for row in table.rows if row.same_as)
    return [f"runs/tables/{name}" for name in (table.id, *others)]


class SeedCount(NamedTuple):
    """How many seeds the figures of a table have."""

    most: int
    fewer: dict[str, int]
    """The rows with fewer seeds than the most."""
    not_measured: int
    rows: int


def count_seeds(lines: Sequence[ComparedRow]) -> SeedCount:
    """Count the seeds of a table's rows."""
    seeds = {line.name: len(line.seeds) for line in lines if line.seeds}
    most = max(seeds.values())
    fewer = {name: number for name, number in seeds.items() if number < most}
    return SeedCount(most, fewer, sum(line.verdict == NOT_MEASURED for line in lines), len(lines))


def describe_seeds(count: SeedCount) -> str:
    """Say how many seeds the figures have."""
    said = "Measured rows have" if count.fewer else "Every measured row has"
    said += f" {count.most} seed{'' if count.most == 1 else 's'}"
    if count.fewer:
        said += f", but {', '.join(f'`{name}` has {number}' for name, number in count.fewer.items())}"
    return f"{said}." + (f" Not measured yet: {count.not_measured} of {count.rows} rows." if count.not_measured else "")


class Verdicts(NamedTuple):
    """Which rows agree with the paper's figure, which are above it and which below, and the known reasons."""

    beside: int
    """Rows that stand beside a figure of the paper's."""
    measured: int
    within: list[str]
    above: dict[str, float]
    below: dict[str, dict[str, float]]
    """By reason: how much lower each row is."""
    cannot: dict[str, str]


def sort_verdicts(table: ReproducedTable, lines: Sequence[ComparedRow]) -> Verdicts:
    """Sort a table's rows by their verdicts."""
    beside = [line for line in lines if line.paper_acc is not None]
    found = Verdicts(len(beside), sum(line.acc is not None for line in beside), [], {}, {}, {})
    for line in beside:
        if line.verdict == WITHIN:
            found.within.append(line.name)
        elif line.verdict == ABOVE and line.difference is not None:
            found.above[line.name] = line.difference
        elif line.verdict == BELOW and line.difference is not None:
            row = table.row(line.name)
            reason = row.note or (QUOTED if row.quoted else NO_REASON)
            found.below.setdefault(reason, {})[line.name] = line.difference
    found.cannot.update((line.name, line.notes[-1]) for line in lines if line.verdict == CANNOT)
    return found


def describe_verdicts(found: Verdicts) -> str:
    """Say which rows agree with the paper's figure, which are above it and which below, and the known reason."""
    said = [f"{found.beside} rows stand beside a figure of the paper's, and {found.measured} of them are measured."]
    if found.within:
        said.append(f"Within: {code(found.within)}.")
    if found.above:
        said.append(f"Above: {_differences(found.above)}.")
    said += [f"Below: {_differences(rows)}: {reason}." for reason, rows in found.below.items()]
    said += [f"Cannot be run: `{name}` ({why})." for name, why in found.cannot.items()]
    return " ".join(said)


def _differences(rows: dict[str, float]) -> str:
    return ", ".join(f"`{name}` ({difference:+.2f})" for name, difference in rows.items())


def commands(table: ReproducedTable, results: Path) -> list[str]:
    """Return what to type."""
    return [*tuning_commands(table, results), f"ucb reproduce {table.id} --device cuda", f"ucb table {table.id}"]


def borrowed_rows(table: ReproducedTable, lines: Sequence[ComparedRow]) -> dict[str, str]:
    """Return the rows that show the runs of other tables, and which."""
    names = {line.name for line in lines if line.seeds}
    return {row.name: row.same_as for row in table.rows if row.same_as and row.name in names}


def runs_by_machine(table: ReproducedTable, results: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of a table by what they ran on."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for _, found in runs_of(table, results):
        for result in found:
            versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
            groups.setdefault(f"{result['device']} ({versions})", []).append(result)
    return groups


def describe_company(found: Sequence[dict[str, Any]]) -> str:
    """Say how many runs shared their device: their times are not those of a run alone."""
    shared = sum(result.get("beside", 0) != 0 for result in found)
    return f" {shared} of them shared it with others, and would have taken less time alone." if shared else ""


def describe_runs(found: Sequence[dict[str, Any]]) -> str:
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
