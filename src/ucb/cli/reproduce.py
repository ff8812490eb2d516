"""``ucb reproduce`` and ``ucb table``: the paper's tables, measured by us, and ours beside the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

import typer

from ucb.bayes.checks import count
from ucb.cli.failing import FAILED, INTERRUPTED, answering, errors
from ucb.cli.show import console, say, show_names
from ucb.cli.watch import Lines, line_of
from ucb.engine import Epoch, InterruptedRunError, Observer
from ucb.reproduce import FORMATS, Outcome, Planned, Table, carry_out, compared, plan, table_named, tables
from ucb.reproduce.running import log_of


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
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.")] = 3,
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
        only = [word.strip() for word in methods.split(",")] if methods else []
        asked = table_named(table)
        planned = plan(asked, range(count("seeds", seeds)), only=only, device=device, results=out)
        show_plan(asked, planned)
        if not dry_run:
            _carry_out(planned, jobs)


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
            show_names({name: f"{each.about}: {progress(each, results)}" for name, each in tables().items()})
            return
        asked = table_named(table)
        typer.echo(FORMATS[format_](asked, compared(asked, results)), nl=False)


def progress(table: Table, results: Path) -> str:
    """Say how much of a table is measured."""
    lines = [line for line in compared(table, results) if line.verdict != "cannot be run"]
    measured = [len(line.seeds) for line in lines if line.seeds]
    several = sum(seeds >= 3 for seeds in measured)
    words = f"{len(measured)} of {len(lines)} rows measured"
    return f"{words}, {several} with three seeds" if measured else words


def show_plan(table: Table, planned: Sequence[Planned]) -> None:
    """Say for each row what there is and what will be done."""
    states = Counter(each.state for each in planned)
    say(f"{table.id}: {table.about}")
    say(f"{len(planned)} runs: " + ", ".join(f"{number} {state}" for state, number in states.items()))
    rows = {}
    for (home, row), runs in groupby(planned, key=lambda each: (each.table, each.row)):
        listed = list(runs)
        rows[row if home == table.id else f"{home}/{row}"] = "; ".join(
            f"{state}: seed {', '.join(str(each.job.seed) for each in listed if each.state == state)}"
            for state in dict.fromkeys(each.state for each in listed)
        ) + _settings(listed[0])
    show_names(rows)
    for each in planned:
        if each.state == "other settings":
            where = each.result if each.result.is_file() else each.folder
            say(f"{each.name} was run with other settings ({'; '.join(each.differs)}): to run it anew, remove {where}")
    for row_ in table.rows:
        if row_.obstacle:
            say(f"{row_.name} cannot be run: {row_.obstacle}")


def _settings(planned: Planned) -> str:
    job = planned.job
    chosen = job.net_options | job.training | job.settings
    return f" ({', '.join(f'{name} {value}' for name, value in chosen.items()) or 'defaults'})"


def _carry_out(planned: Sequence[Planned], jobs: int) -> None:
    total, failed, done = sum(each.to_do for each in planned), list[Outcome](), 0
    try:
        for outcome in carry_out(planned, watching, jobs):
            done += 1
            say(f"[{done}/{total}] {outcome.planned.name}: {_said(outcome)}")
            if outcome.result is None:
                failed.append(outcome)
    except (InterruptedRunError, KeyboardInterrupt):
        _complain(f"interrupted: {done} of {total} runs are done; the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from None
    for outcome in failed:
        _complain(f"error: {outcome.planned.name}: {outcome.failure}")
    if failed:
        raise typer.Exit(FAILED)


def _said(outcome: Outcome) -> str:
    if outcome.result is None:
        return f"failed: {outcome.failure}"
    result = outcome.result
    bwt = "" if result["bwt"] is None else f"   BWT {result['bwt']:+z.2f}"
    return f"ACC {result['acc']:.2f}{bwt}   {result['seconds']:.0f} s"


def _complain(line: str) -> None:
    errors.print(line, highlight=False, markup=False, soft_wrap=not errors.is_terminal)
