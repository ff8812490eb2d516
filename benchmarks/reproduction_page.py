"""docs/reproduction.md: what of the paper reproduces and what does not. Every figure comes from results/ and from data.

The sections of tables are in :mod:`reproduction_section`; this is what stands before and after them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from method_tables import table as markdown_table
from reproduction_section import capital, duration, is_above, section, wrapped
from reproduction_settings import runs_of
from tune_tables import KINDS, TABLES
from ucb import paper
from ucb.engine import Training
from ucb.reproduce import Line, Table, compared, table_named, tables
from ucb.reproduce.compare import CANNOT, MATCHED, WITHOUT_SPREAD, Measure
from ucb.stream.builders import VALIDATION

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
CONTROL, OURS, ENOUGH = "uniform-lr", ("ucb", "ucb-ng"), 3
Lines = Mapping[str, Sequence[Line]]


def page(results: Path = ROOT / "results") -> str:
    """Return the whole page."""
    lines = {name: compared(table, results) for name, table in tables().items()}
    measured = [table for table in tables().values() if any(line.seeds for line in lines[table.id])]
    parts = ["# Reproduction", wrapped(ABOUT), words(), "## In short", summary(lines, results), controls(lines)]
    parts += ["## How our runs differ from the paper's", differing()]
    parts += ["## Where the paper contradicts itself", contradictions()]
    parts += [section(table, lines[table.id], results) for table in measured]
    parts += [unmeasured([table for table in tables().values() if table not in measured])]
    return "\n\n".join(part for part in parts if part) + "\n"


ABOUT = (
    "The paper's tables, measured by us, beside the paper's figures. `python benchmarks/write_docs.py` writes this "
    "page from the result files in `results/tables/`, the recipes, and the paper's tables as data (`ucb.paper`); no "
    "figure is typed by hand. `ucb table TABLE` prints one table, `ucb reproduce TABLE` runs what it lacks."
)


def words() -> str:
    """Say what the words of the tables mean."""
    point = f"{WITHOUT_SPREAD:g} point{'' if WITHOUT_SPREAD == 1 else 's'}"
    return bullets(
        "**ACC** is the mean test accuracy over all tasks after the last one was learnt, in percent.",
        "**BWT** is the mean over all tasks of how much the accuracy has changed since the task was learnt, in points: "
        "below zero is forgetting. As in the paper's Eq. 8 the last task counts, with 0.",
        "**+-** is the standard deviation over seeds, and **difference** our ACC less the paper's.",
        "**matched**: our ACC is at most twice the combined spread below the paper's (the root of the sum of both "
        f"squares), or at most {point} where no spread is known. A row that is higher is matched, too; below each "
        "table it is said which are higher by more than that. BWT stands beside it and decides nothing.",
    )


def summary(lines: Lines, results: Path) -> str:
    """Say how much is measured and how much of it matches."""
    can_run = [line for each in lines.values() for line in each if line.verdict != CANNOT]
    measured = [line for line in can_run if line.seeds]
    beside = [line for line in measured if line.paper_acc is not None]
    matched = [line for line in beside if line.verdict == MATCHED]
    enough = sum(len(line.seeds) >= ENOUGH for line in measured)
    runs = [result for table in tables().values() for _, found in runs_of(table, results) for result in found]
    took = duration(sum(run["seconds"] for run in runs))
    return wrapped(
        f"{len(measured)} of {len(can_run)} rows are measured, {enough} of them with {ENOUGH} seeds or more: "
        f"{len(runs)} runs, whose times add up to {took}. {len(beside)} of these rows stand beside a figure of the "
        f"paper's: {len(matched)} match it, of which {sum(map(is_above, matched))} are above it by more than the same "
        f"measure, and {len(beside) - len(matched)} do not match."
    )


def controls(lines: Lines) -> str:
    """Say whether uncertainty did the work: UCB beside its control, which has one rate for all weights of a layer."""
    rows = [row for table in tables().values() for row in comparisons(table, lines[table.id])]
    if not rows:
        return ""
    better = sum(row[-1] == "yes" for row in rows)
    said = (
        f"Does the uncertainty do the work? The control `{CONTROL}` is UCB with one rate for all weights of a layer. "
        f"In {better} of {len(rows)} comparisons the rates that follow each weight's uncertainty are better by more "
        "than twice the combined spread:"
    )
    heads = ["table", "ours", "ACC", f"ACC of `{CONTROL}`", "difference", "twice the combined spread", "better?"]
    return f"{wrapped(said)}\n\n{markdown_table(heads, rows)}"


def comparisons(table: Table, lines: Sequence[Line]) -> Iterator[list[str]]:
    """Yield UCB's rows beside the control of the same variant."""
    shown = {line.name: line for line in lines}
    rows = {(row.method, row.variant): shown.get(row.name) for row in table.rows if not row.same_as}
    for (method, variant), line in rows.items():
        control = rows.get((CONTROL, variant))
        if method in OURS and line is not None and control is not None and line.acc and control.acc:
            yield [f"`{table.id}`", f"`{line.name}`", *beside(line.acc, control.acc)]


def beside(ours: Measure, control: Measure) -> list[str]:
    """Return both figures, their difference, what it must exceed, and whether it does."""
    difference = ours.value - control.value
    cells = [figure(ours), figure(control), f"{difference:+z.2f}"]
    if ours.spread is None or control.spread is None:
        return [*cells, "-", "one seed cannot tell"]
    allowed = 2 * math.hypot(ours.spread, control.spread)
    said = "yes" if difference > allowed else "no, worse" if difference < -allowed else "no, within the spread"
    return [*cells, f"{allowed:.2f}", said]


def figure(measure: Measure) -> str:
    """Return a figure with its spread."""
    return f"{measure.value:.2f}" + ("" if measure.spread is None else f" +- {measure.spread:.2f}")


def differing() -> str:
    """Say what is done otherwise than in the paper, as far as that is known."""
    budgets = sorted({row.budget for table in tables().values() for row in table.rows if row.budget}, reverse=True)
    return bullets(
        f"**Held-out data.** {VALIDATION:.0%} of the training data of every task is held out, by seed. It drives the "
        "plateau rule and chooses settings, and is never trained on. The paper holds out data of the first two tasks.",
        "**Size.** The paper compares nets by what they store. An MLP of ours has the width at which it comes nearest "
        f"to {' or '.join(f'{budget:,}' for budget in budgets)} stored values, as the table asks; mu and rho of a "
        "Gaussian weight are two values, so that ordinary nets are about twice as wide. The widths are in the tables "
        "of settings.",
        "**Tuning.** The paper tunes on validation data of the first two tasks. These often do not foretell what ten "
        "will forget (they are easily told apart, or the net is too small for many), so that held-out data of all "
        f"tasks decides, but for {by_two()}. Where a table has no recipe of its own for a method, the benchmark's "
        "serves; each says which data decided. Every method has its own grid, and test data is never read "
        "([methods.md](methods.md)).",
        f"**Judging.** Class probabilities are averaged over {Training().eval_samples} weight samples.",
        "**One head.** With the task hidden and an output for each class of each task, an answer is right only if it "
        "is the right class of the right task ([runs.md](runs.md)).",
    )


def by_two() -> str:
    """Name the methods, by recipe, that the first two tasks judge."""
    found = []
    for name, kind in KINDS.items():
        rows = [row for table in TABLES for row in table_named(table).rows if row.recipe == name and row.budget]
        if others := sorted({row.method for row in rows if row.method} - kind.by_all):
            found.append(f"{', '.join(f'`{method}`' for method in others)} in `{name}`")
    return " and ".join(found)


def contradictions() -> str:
    """Return where the paper has several figures for one thing."""
    return bullets(
        *(f"{capital(each.about)}: {'; '.join(stated(each))}. {each.note}" for each in paper.contradictions())
    )


def stated(contradiction: paper.Contradiction) -> list[str]:
    """Return each figure with all places where it stands; the rows and columns of tables where these differ."""
    cells = [each for each in contradiction.stated if each.table is not None]
    rows = {title_of(cell) for cell in cells}
    columns = {cell.column for cell in cells}
    places: dict[float, list[str]] = {}
    for each in contradiction.stated:
        words = [f"the text on {each.text}"] if each.text is not None else [each.elsewhere or ""]
        if each.table is not None:
            words = [f"table `{each.table}`"]
            words += [f"row {title_of(each)}"] if len(rows) > 1 else []
            words += [f"column {each.column}"] if len(columns) > 1 else []
        places.setdefault(each.value, []).append(", ".join(words))
    return [f"{value:g} ({'; '.join(where)})" for value, where in places.items()]


def title_of(cell: paper.Stated) -> str:
    """Return the name of a cell's row, with what tells it from others of that name."""
    assert cell.table is not None
    assert cell.row is not None
    return paper.table(cell.table).row(cell.row, cell.of).title


def unmeasured(left: Sequence[Table]) -> str:
    """Return the tables without any figure of ours."""
    if not left:
        return ""
    lines = [f"- {capital(table.about)}: `{commands_for(table)}`" for table in left]
    return "\n".join(["## Not measured yet", "", *lines])


def commands_for(table: Table) -> str:
    """Return what chooses a table's settings, where one script does, and runs it."""
    tune = f"python benchmarks/tune_tables.py {table.id} --device cuda && " if table.id in TABLES else ""
    return f"{tune}ucb reproduce {table.id} --device cuda"


def bullets(*texts: str) -> str:
    """Return a list."""
    return "\n".join(wrapped(f"- {text}", indent="  ") for text in texts)
