"""``ucb reproduce`` and ``ucb table``: the paper's tables, measured by us, and ours beside the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

import typer

from ucb.bayes.checks import count
from ucb.cli.failing import FAILED, INTERRUPTED, answering, warn
from ucb.cli.order import seeds_in
from ucb.cli.show import console, say, show_names
from ucb.cli.terminal import write
from ucb.cli.watch import Lines, line_of
from ucb.engine import Epoch, InterruptedRunError, Observer
from ucb.engine.job import device_called
from ucb.experiments.reproduce.compare import CANNOT, NO_RECIPE
from ucb.experiments.reproduce.compare import compare_table as compared
from ucb.experiments.reproduce.definitions import ReproducedRow as Row
from ucb.experiments.reproduce.definitions import ReproducedTable as Table
from ucb.experiments.reproduce.definitions import table_named, tables
from ucb.experiments.reproduce.formats import FORMATS
from ucb.experiments.reproduce.planning import DamagedResultError, plan
from ucb.experiments.reproduce.planning import TableRun as Planned
from ucb.experiments.reproduce.planning import choose_rows as chosen
from ucb.experiments.reproduce.running import CallRecord, carry_out, log_of
from ucb.experiments.reproduce.running import RunOutcome as Outcome


def _tables(begun: str) -> list[str]:
    """Complete the name of a table."""
    return [name for name in tables() if name.startswith(begun)]


Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
HELP = "Which table: `ucb table` lists them."


class InShort(Lines):
    """Prints the accuracies after each task; epochs go to the log only."""

    def epoch_ended(self, epoch: Epoch) -> None:
        """Keep the epoch."""
        self.keep(line_of(epoch))


def watching(planned: Planned) -> Observer:
    """Return what shows a run of a table."""
    return InShort(console, log_of(planned), f"{planned.name}: ")


def reproduce_command(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=HELP, autocompletion=_tables)],
    methods: Annotated[
        str | None, typer.Option(metavar="ucb,hat", help="Only these methods or rows, with commas between.")
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="1,2,3", help="Which seeds; seed 0 is the one that settings are chosen by.")
    ] = "1,2,3",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    jobs: Annotated[
        int, typer.Option(help="On a CPU so many processes, a thread each; on a GPU so many rows side by side.")
    ] = 1,
    out: Annotated[Path, typer.Option(help="Where results are kept, in tables/TABLE.")] = Path("results"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
    debug: Debug = False,
) -> None:
    """Run what a table still lacks, and go on with what was cut; each run is a file in the results.

    Runs under way are in runs/tables/TABLE. Whatever stops it, the same command goes on.
    """
    with answering(out, debug or bool(context.obj)):
        count("jobs", jobs)
        device_called(device)  # a plan may be of another machine
        only = [] if methods is None else names_in(methods)
        asked = table_named(table)
        planned = plan(asked, seeds_in(seeds), only=only, device=device, results=out)
        impossible = [row for row in chosen(asked, only) if row.obstacle]
        show_plan(asked, planned, impossible)
        if not dry_run:
            _carry_out(asked, planned, jobs, out, [row.name for row in impossible] if only else [])


def table_command(
    context: typer.Context,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="Which; all are listed if left out.", autocompletion=_tables)
    ] = None,
    format_: Annotated[Literal["text", "md", "csv", "tex", "json"], typer.Option("--format")] = "text",
    results: Annotated[Path, typer.Option(help="Where results are kept.")] = Path("results"),
    debug: Debug = False,
) -> None:
    """Print a table of ours beside the paper's figures: mean and spread over seeds, and the difference in ACC."""
    with answering(results, debug or bool(context.obj)):
        if table is None:
            show_tables(results)
            return
        asked = table_named(table)
        write(FORMATS[format_](asked, compared(asked, results)))


def names_in(words: str) -> list[str]:
    """Return the names in a list with commas; an empty one is refused, as it could be read as all or as none."""
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise ValueError(f"methods must be names with commas between, not {words!r}: leave it out for the whole table")
    return names


def show_tables(results: Path) -> None:
    """List the tables with how much of each is measured; one that cannot be read does not hide the others."""
    about, damaged = {}, list[str]()
    for name, table in tables().items():
        try:
            said = progress(table, results)
        except DamagedResultError as error:
            said = "it cannot be read"
            damaged += str(error).splitlines()
        about[name] = f"{table.about}: {said}"
    show_names(about)
    for line in dict.fromkeys(damaged):  # runs may serve several tables
        warn(f"error: {line}")
    if damaged:
        raise typer.Exit(FAILED)


def progress(table: Table, results: Path) -> str:
    """Say how much of a table is measured."""
    lines = [line for line in compared(table, results) if line.verdict != CANNOT]
    measured = [line for line in lines if line.seeds]
    words = f"{len(measured)} of {len(lines)} rows measured"
    if measured:
        words += f", {sum(len(line.seeds) >= 3 for line in measured)} with three seeds"
    if others := sum(line.other_settings for line in measured):
        words += f", {others} with other settings than now"
    return words


def show_plan(table: Table, planned: Sequence[Planned], impossible: Sequence[Row]) -> None:
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
        ) + _settings(listed[0])
    show_names(rows)
    for each in planned:
        if each.remove:
            say(f"{each.name} {_hindered(each)}: to run it anew, remove {' and '.join(map(str, each.remove))}")
    for row_ in impossible:
        say(f"{row_.name} cannot be run: {row_.obstacle}")


def _settings(planned: Planned) -> str:
    job = planned.job
    settings = job.net_options | job.training | job.settings
    words = [", ".join(f"{name} {value}" for name, value in settings.items())]
    words += [] if planned.has_recipe else [NO_RECIPE]
    return f" ({'; '.join(filter(None, words)) or 'defaults'})"


def _hindered(planned: Planned) -> str:
    what = "was run with other settings" if planned.state == "other settings" else "cannot be used"
    return f"{what} ({'; '.join(planned.why)})"


def _carry_out(table: Table, planned: Sequence[Planned], jobs: int, out: Path, impossible: Sequence[str]) -> None:
    """Run what is to do; at the end say what was asked for and is not there, and exit accordingly."""
    total, done = sum(each.to_do for each in planned), 0
    lacking = list[str]()
    record = CallRecord(table.id, planned, jobs, out) if total else None
    try:
        for outcome in carry_out(planned, watching, jobs):
            done += 1
            assert record is not None
            record.add(outcome)
            say(f"[{done}/{total}] {outcome.planned.name}: {_said(outcome)}")
            if outcome.result is None:
                lacking.append(f"{outcome.planned.name}: {outcome.failure}")
    except (InterruptedRunError, KeyboardInterrupt):
        done = sum(each.to_do and each.result.is_file() for each in planned)  # some end while others are stopped
        if record is not None:
            record.close(is_whole=False)
        warn(f"interrupted: {done} of {total} runs are done; the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from None
    if record is not None:
        record.close(is_whole=True)
        say(f"{total} runs took {record.values['seconds']:.0f} s on {record.values['device']}; {record.path} says so")
    lacking += [f"{each.name} was not run: remove what is named above" for each in planned if each.remove]
    lacking += [f"{name} cannot be run" for name in impossible]
    for line in lacking:
        warn(f"error: {line}")
    if lacking:
        raise typer.Exit(FAILED)


def _said(outcome: Outcome) -> str:
    if outcome.result is None:
        return f"failed: {outcome.failure}"
    result = outcome.result
    bwt = "" if result["bwt"] is None else f"   BWT {result['bwt']:+z.2f}"
    time = f"   {result['seconds']:.0f} s" if "seconds" in result else ""  # tables do without it
    return f"ACC {result['acc']:.2f}{bwt}{time}"
