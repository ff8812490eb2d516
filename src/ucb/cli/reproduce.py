"""``ucb reproduce`` and ``ucb table``: the paper's tables, measured by us, and ours beside the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from ucb.cli.command import FAILED, Debug, Device, complete, explain_interrupt
from ucb.cli.run import LOG, parse_seeds
from ucb.cli.terminal import console, print_names, say, warn, write

if TYPE_CHECKING:
    from ucb.engine import Observer
    from ucb.experiments.reproduce.definitions import ReproducedRow, ReproducedTable
    from ucb.experiments.reproduce.planning import TableRun
    from ucb.experiments.reproduce.running import RunOutcome

complete_table = complete("ucb.experiments.reproduce.definitions", "tables")


def reproduce_command(
    table: Annotated[
        str,
        Argument(metavar="TABLE", help="A table of the paper; `ucb table` lists them.", autocompletion=complete_table),
    ],
    methods: Annotated[str | None, Option(metavar="ucb,hat", help="Only these methods or rows.")] = None,
    seeds: Annotated[
        str, Option(metavar="1,2,3", help="The seeds. Settings were chosen with seed 0, so it is left out.")
    ] = "1,2,3",
    device: Device = "cpu",
    jobs: Annotated[
        int, Option(help="Runs at a time: processes with one thread each on a CPU, rows side by side on a GPU.")
    ] = 1,
    out: Annotated[Path, Option(help="The folder of results; they go to tables/TABLE in it.")] = Path("results"),
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be run.")] = False,
    debug: Debug = False,
) -> None:
    """Run what is still missing in a table, and go on with runs that were interrupted; each result is a file.

    Runs under way are in runs/tables/TABLE. Whatever stops this command, the same command goes on.
    """
    from ucb.checks import count, parse_device
    from ucb.experiments.reproduce.definitions import table_named
    from ucb.experiments.reproduce.planning import choose_rows, plan

    count("jobs", jobs)
    parse_device(device)  # a plan may be of another machine
    only = [] if methods is None else parse_names(methods)
    asked = table_named(table)
    planned = plan(asked, parse_seeds(seeds), only=only, device=device, results=out)
    impossible = [row for row in choose_rows(asked, only) if row.obstacle]
    show_plan(asked, planned, impossible)
    if not dry_run:
        _carry_out(asked, planned, jobs, out, [row.name for row in impossible] if only else [])


def table_command(
    table: Annotated[
        str | None,
        Argument(metavar="TABLE", help="Which table; without it, all are listed.", autocompletion=complete_table),
    ] = None,
    format_: Annotated[
        Literal["text", "md", "csv", "tex", "json"], Option("--format", help="text, md, csv, tex or json.")
    ] = "text",
    results: Annotated[Path, Option(help="The folder of results.")] = Path("results"),
    debug: Debug = False,
) -> None:
    """Print our results beside the paper's: mean and spread over seeds, and the difference in ACC (mean accuracy)."""
    from ucb.experiments.reproduce.compare import FORMATS, compare_table
    from ucb.experiments.reproduce.definitions import table_named

    if table is None:
        show_tables(results)
    else:
        asked = table_named(table)
        write(FORMATS[format_](asked, compare_table(asked, results)))


def watch_planned(planned: TableRun) -> Observer:
    """Return what shows a run of a table."""
    from ucb.cli.watch import LinesWithoutEpochs

    return LinesWithoutEpochs(console, planned.folder / LOG, f"{planned.name}: ")


def parse_names(words: str) -> list[str]:
    """Return the names in a list with commas; an empty one is refused, as it could be read as all or as none."""
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise ValueError(f"--methods takes names separated by commas, not {words!r}: leave it out for the whole table")
    return names


def show_tables(results: Path) -> None:
    """List the tables with how much of each is measured; one that cannot be read does not hide the others."""
    from ucb.experiments.reproduce.definitions import tables
    from ucb.experiments.reproduce.planning import DamagedResultError

    about, damaged = {}, list[str]()
    for name, table in tables().items():
        try:
            said = describe_progress(table, results)
        except DamagedResultError as error:
            said = "it cannot be read"
            damaged += str(error).splitlines()
        about[name] = f"{table.about}: {said}"
    print_names(about)
    for line in dict.fromkeys(damaged):  # runs may serve several tables
        warn(f"error: {line}")
    if damaged:
        raise typer.Exit(FAILED)


def describe_progress(table: ReproducedTable, results: Path) -> str:
    """Say how much of a table is measured."""
    from ucb.experiments.reproduce.compare import CANNOT, compare_table

    lines = [line for line in compare_table(table, results) if line.verdict != CANNOT]
    measured = [line for line in lines if line.seeds]
    words = f"{len(measured)} of {len(lines)} rows measured"
    if measured:
        words += f", {sum(len(line.seeds) >= 3 for line in measured)} with three seeds"
    if others := sum(line.other_settings for line in measured):
        words += f", {others} with other settings than now"
    return words


def show_plan(table: ReproducedTable, planned: Sequence[TableRun], impossible: Sequence[ReproducedRow]) -> None:
    """Say for each row what there is and what will be done."""
    states = Counter(each.state for each in planned)
    say(f"{table.id}: {table.about}")
    say(": ".join(filter(None, [f"{len(planned)} runs", ", ".join(f"{n} {state}" for state, n in states.items())])))
    rows = {}
    for (home, row), runs in groupby(planned, key=lambda each: (each.table, each.row)):
        listed = list(runs)
        rows[row if home == table.id else f"{home}/{row}"] = "; ".join(
            f"{state}: seed {', '.join(str(each.job.seed) for each in listed if each.state == state)}"
            for state in dict.fromkeys(each.state for each in listed)
        ) + _describe_settings(listed[0])
    print_names(rows)
    for each in planned:
        if each.remove:
            what = "was run with other settings" if each.state == "other settings" else "cannot be used"
            how = f"to run it anew, remove {' and '.join(map(str, each.remove))}"
            say(f"{each.name} {what} ({'; '.join(each.why)}): {how}")
    for row_ in impossible:
        say(f"{row_.name} cannot be run: {row_.obstacle}")


def _describe_settings(planned: TableRun) -> str:
    from ucb.experiments.reproduce.compare import NO_RECIPE

    job = planned.job
    settings = job.net_options | job.training | job.settings
    words = [", ".join(f"{name} {value}" for name, value in settings.items())]
    words += [] if planned.has_recipe else [NO_RECIPE]
    return f" ({'; '.join(filter(None, words)) or 'defaults'})"


def _carry_out(
    table: ReproducedTable, planned: Sequence[TableRun], jobs: int, out: Path, impossible: Sequence[str]
) -> None:
    """Run what is to do; at the end say what was asked for and is not there, and exit accordingly."""
    from ucb.experiments.reproduce.running import CallRecord, carry_out

    total, done = sum(each.to_do for each in planned), 0
    lacking = list[str]()
    record = CallRecord(table.id, planned, jobs, out) if total else None

    def explain(_: BaseException) -> str:
        if record is not None:
            record.close(is_whole=False)
        ended = sum(each.to_do and each.result.is_file() for each in planned)  # some end while others are stopped
        return f"interrupted: {ended} of {total} runs are done; the same command goes on from here"

    with explain_interrupt(explain):
        for outcome in carry_out(planned, watch_planned, jobs):
            done += 1
            assert record is not None
            record.add(outcome)
            say(f"[{done}/{total}] {outcome.planned.name}: {_describe_outcome(outcome)}")
            if outcome.result is None:
                lacking.append(f"{outcome.planned.name}: {outcome.failure}")
    if record is not None:
        record.close(is_whole=True)
        say(f"{total} runs took {record.values['seconds']:.0f} s on {record.values['device']}: see {record.path}")
    lacking += [f"{each.name} was not run: remove what is named above" for each in planned if each.remove]
    lacking += [f"{name} cannot be run" for name in impossible]
    for line in lacking:
        warn(f"error: {line}")
    if lacking:
        raise typer.Exit(FAILED)


def _describe_outcome(outcome: RunOutcome) -> str:
    if outcome.result is None:
        return f"failed: {outcome.failure}"
    result = outcome.result
    bwt = "" if result["bwt"] is None else f"   BWT {result['bwt']:+z.2f}"
    time = f"   {result['seconds']:.0f} s" if "seconds" in result else ""  # tables do without it
    return f"ACC {result['acc']:.2f}{bwt}{time}"
