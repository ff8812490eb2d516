"""docs/reproduction.md: what of the paper reproduces and what does not. Every figure comes from results/ and from data.

The sections of tables are in :mod:`reproduction_section`; this is what stands before and after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.docs.markdown import bullets, capitalize, code, wrap
from tools.docs.reproduction_rivals import ROOT, Lines, compare_controls, describe_controls, describe_rivals
from tools.docs.reproduction_section import duration, section
from tools.docs.reproduction_settings import SCRIPT, folder_of, runs_of
from tools.tune_tables import TABLES
from ucb.data.streams.benchmarks import VALIDATION
from ucb.engine import Training
from ucb.experiments.reproduce import paper
from ucb.experiments.reproduce.compare import ABOVE, BELOW, CANNOT, LEAST, MOST, WITHIN, WITHOUT_SPREAD, compare_table
from ucb.experiments.reproduce.definitions import ReproducedRow, ReproducedTable, complete, recipe_of, tables
from ucb.methods import find_method

PAGE = ROOT / "docs" / "reproduction.md"
ENOUGH = 3


def page(results: Path = ROOT / "results") -> str:
    """Return the whole page."""
    lines = compare_all(results)
    measured = [table for table in tables().values() if any(line.seeds for line in lines[table.id])]
    parts = [
        "# Reproduction",
        wrap(ABOUT),
        words(),
        "## In short",
        describe_rows(count_rows(lines, results)),
        describe_controls(compare_controls(lines, results)),
        describe_rivals(lines),
        "## How our runs differ from the paper's",
        describe_differences(results),
        "## Where the paper contradicts itself",
        describe_contradictions(),
        *(section(table, lines[table.id], results) for table in measured),
        describe_unmeasured([table for table in tables().values() if table not in measured]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def compare_all(results: Path) -> Lines:
    """Return the lines of every table."""
    return {name: compare_table(table, results) for name, table in tables().items()}


ABOUT = (
    "The paper's tables, measured by us, beside the paper's figures. `python -m tools.docs` writes this page from the "
    "result files in `results/tables/`, the recipes, and the paper's tables as data "
    "(`ucb.experiments.reproduce.paper`); no figure is typed by hand. `ucb table TABLE` prints one table, `ucb "
    "reproduce TABLE` runs what it lacks."
)


def words() -> str:
    """Say what the words of the tables mean."""
    return bullets(
        "**ACC** is the mean test accuracy over all tasks after the last one was learnt, in percent.",
        "**BWT** is the mean over all tasks of how much the accuracy has changed since the task was learnt, in points: "
        "below zero is forgetting. As in the paper's Eq. 8 the last task counts, with 0. Of `ucb-p` a task is judged "
        "before weights are pruned, as in the paper: its BWT is what pruning cost. `packnet` is judged after that.",
        "**+-** is the standard deviation over seeds (squares divided by n - 1), and **difference** our ACC less the "
        "paper's.",
        f"**within**: our ACC differs from the paper's by at most twice the combined spread (the root of the sum of "
        f"both squares, as far as they are known), but {LEAST:g} points are always allowed and more than {MOST:g} "
        f"never, and {WITHOUT_SPREAD:g} where no spread is known; half of the last digit that the paper "
        "prints is added. Else it is **above** or **below**. BWT stands beside it and decides nothing.",
    )


class RowCount(NamedTuple):
    """How much is measured and how much of it matches."""

    rows: int
    measured: int
    enough: int
    """With three seeds or more."""
    runs: int
    seconds: float
    verdicts: Counter[str]
    """Of the rows that stand beside a figure of the paper's."""


def count_rows(lines: Lines, results: Path) -> RowCount:
    """Count the rows of all tables."""
    can_run = [line for each in lines.values() for line in each if line.verdict != CANNOT]
    measured = [line for line in can_run if line.seeds]
    verdicts = Counter(
        line.verdict
        for name, table in tables().items()
        for line in lines[name]
        if line.seeds and line.paper_acc is not None and stands_for_itself(table.row(line.name))
    )
    enough = sum(len(line.seeds) >= ENOUGH for line in measured)
    runs = [result["seconds"] for _, found in all_runs(results) for result in found]
    return RowCount(len(can_run), len(measured), enough, len(runs), sum(runs), verdicts)


def describe_rows(count: RowCount) -> str:
    """Say how much is measured and how much of it matches."""
    verdicts = count.verdicts
    return wrap(
        f"{count.measured} of {count.rows} rows are measured, {count.enough} of them with {ENOUGH} seeds or more: "
        f"{count.runs} runs, whose times add up to {duration(count.seconds)}. {verdicts.total()} of these rows stand "
        f"beside a figure of the paper's: {verdicts[WITHIN]} agree with it, {verdicts[ABOVE]} are above it and "
        f"{verdicts[BELOW]} below. Some figures have several readings of ours beside them. Rows that show another "
        "table's runs are not counted here, nor is the conjugate head, which is another method than the one whose "
        "figure stands beside it."
    )


def all_runs(results: Path) -> Iterator[tuple[ReproducedRow, list[dict[str, Any]]]]:
    """Yield the rows of all tables that have runs of their own, with what these found."""
    for table in tables().values():
        yield from runs_of(table, results)


def stands_for_itself(row: ReproducedRow) -> bool:
    """Whether a row has runs of its own, by the method of the paper's figure."""
    return not row.same_as and row.method != "conjugate"


def describe_differences(results: Path) -> str:
    """Say what is done otherwise than in the paper, as far as that is known."""
    budgets = sorted({row.budget for table in tables().values() for row in table.rows if row.budget}, reverse=True)
    return bullets(
        describe_ucb(ucb_spans(results)),
        "**Images** of MNIST stay 28 x 28 with one channel, where the paper says 32 x 32 x 3 in all experiments.",
        f"**Held-out data.** {VALIDATION:.0%} of the training data of every task is held out, by seed. It drives the "
        "plateau rule and chooses settings, and is never trained on. The paper holds out data of the first two tasks.",
        "**Size.** The paper compares nets by what they store. An MLP of ours has the width at which the net itself "
        f"comes nearest to {' or '.join(f'{budget:,}' for budget in budgets)} values, as the table asks; mu and "
        "rho of a Gaussian weight are two values, so that ordinary nets are about twice as wide. The widths are in the "
        "tables of settings. What a method keeps beside the net (importances, masks, curvature) comes on top, and "
        "`ucb table TABLE --format csv` has it as stored values; " + largest_head(results) + ".",
        "**Tuning.** The paper tunes on validation data of the first two tasks. These often do not foretell what ten "
        "will forget (they are easily told apart, or the net is too small for many), so that held-out data of all "
        f"tasks decides, but for {by_two(results)}. Where a table has no recipe of its own for a method, the "
        "benchmark's serves; each says which data decided. Every method has its own grid, and test data chooses no "
        "settings ([methods.md](methods.md)). Settings that lie **at an edge** of what was tried are named: "
        "something better may lie beyond.",
        "**IMM** merges the nets of all tasks at a task's end, and each task is judged after that, the first time too: "
        "its BWT may be above 0. Of its two forms the one with the better test ACC stands beside the paper's.",
        f"**Judging.** Class probabilities are averaged over {Training().eval_samples} weight samples.",
        "**One head.** With the task hidden and an output for each class of each task, an answer is right only if it "
        "is the right class of the right task ([runs.md](runs.md)). All methods but `conjugate` take settings there "
        "that were chosen with several heads.",
    )


def ucb_spans(results: Path) -> dict[str, str]:
    """Return from where to where the settings of UCB's runs go; nothing where there are none."""
    runs = [
        complete(found[0]["config"]) for row, found in all_runs(results) if row.method == "ucb" and row.variant != "t0"
    ]
    if not runs:
        return {}
    settings = {name: span(run["settings"][name] for run in runs) for name in ("lr", "temperature")}
    return {"epochs": span(run["training"]["epochs"] for run in runs), **settings}


def describe_ucb(spans: dict[str, str]) -> str:
    """Say how the paper's own method is set here, and how there."""
    said = (
        "**UCB itself.** The paper trains with a rate of 0.01 and the whole KL until the loss plateaus, with rates of "
        "lr / Omega for each weight after the first task. "
    )
    if not spans:
        return said + "None of its runs is here yet."
    own: Any = find_method("ucb").settings_type()
    return said + (
        f"Here `ucb` learns for {spans['epochs']} epochs a task, with lr {spans['lr']}, gradients clipped at "
        f"{own.clip:g}, the KL times {spans['temperature']} (rows named `t0` have none), a gain on 1 / Omega, rates "
        "that are never above lr and that each "
        f"task's end sets anew, sigma that starts at {own.init_std_ratio:g} of the weights' root mean square, and "
        "outputs sampled instead of weights (local reparameterisation). The paper's own settings are no row here."
    )


def span(values: Iterable[float]) -> str:
    """Return the least and the most of some numbers."""
    found = sorted(set(values))
    return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"


def largest_head(results: Path) -> str:
    """Say what the conjugate head stores, whose size no budget limits."""
    stored = [
        result["stored_values"]
        for row, found in all_runs(results)
        for result in found
        if row.method == "conjugate" and "stored_values" in result
    ]
    most = f"; with its net at most {max(stored) / 1e6:.0f} million values in these tables" if stored else ""
    return f"the conjugate head keeps a matrix of (width + 1)^2 in double precision, two values each{most}"


def by_two(results: Path) -> str:
    """Name the methods whose settings the first two tasks chose, by the recipe that measured rows took."""
    found: dict[str, set[str]] = {}
    for row, _ in all_runs(results):
        folder = folder_of(row)
        if folder and row.method and "first two tasks" in recipe_of(row).found:
            found.setdefault(folder, set()).add(row.method)
    named = [f"{code(sorted(found[name]))} in `{name}`" for name in sorted(found)]
    return "; ".join(named) or "none"


def describe_contradictions() -> str:
    """Return where the paper has several figures for one thing."""
    every = paper.contradictions()
    return bullets(*(f"{capitalize(each.about)}: {'; '.join(describe_places(each))}. {each.note}" for each in every))


def describe_places(contradiction: paper.Contradiction) -> list[str]:
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


def describe_unmeasured(left: Sequence[ReproducedTable]) -> str:
    """Return the tables without any figure of ours."""
    if not left:
        return ""
    lines = [f"- {capitalize(table.about)}: `{commands_for(table)}`" for table in left]
    return "\n".join(["## Not measured yet", "", *lines])


def commands_for(table: ReproducedTable) -> str:
    """Return what chooses a table's settings, where one script does, and runs it."""
    tune = f"{SCRIPT} {table.id} --device cuda && " if table.id in TABLES else ""
    return f"{tune}ucb reproduce {table.id} --device cuda"
