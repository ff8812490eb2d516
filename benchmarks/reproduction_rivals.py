"""UCB beside others of our own rows: its controls, which tell no weight from another, and the best of the baselines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from method_tables import table as markdown_table
from reproduction_section import wrapped
from ucb.reproduce import Line, Row, Table, compared, tables
from ucb.reproduce.compare import Measure, results_of

ROOT = Path(__file__).parent.parent
Lines = Mapping[str, Sequence[Line]]

CONTROLS = {"ucb": ("uniform-lr",), "ucb-ng": ("ucb-ng-uniform", "uniform-lr")}
"""Of each method of ours, whose rates follow the uncertainty, first the same without that: its own control."""
OURS = tuple(CONTROLS)
RIVALS = ("ord-ft", "hat", "packnet")
STILL = 0.01
"""Where the logarithm varies by less, all are the same within a percent."""
SEVERAL_HEADS = ("5split-mnist", "permuted-mnist", "2split-mnist")


class Compared(NamedTuple):
    """A row of ours beside a control."""

    method: str
    is_own: bool
    """Whether the method differs in the rates alone; its settings were searched for themselves."""
    spread: float | None
    """How much log sigma varies within the first layer."""
    is_better: bool
    cells: list[str]


def controls(lines: Lines, results: Path) -> str:
    """Say whether uncertainty did the work."""
    found = [each for table in tables().values() for each in _controlled(table, lines[table.id], results)]
    if not found:
        return ""
    said = (
        "Does the uncertainty do the work? `uniform-lr` is UCB with one rate for all weights, `ucb-ng-uniform` is "
        "UCB-NG with one rate for all weights of a tensor, the mean of those that it would have given them. "
        f"{counted(found)} Each control was searched for itself and may have another lr, temperature or prior, too: "
        "where log sigma hardly varies, a difference tells how well each was searched and nothing of uncertainty. "
        "Beside each stands how much log sigma varies "
        "within the first layer (standard deviation, mean over seeds): where that is near 0, sigma never left its "
        "start, rates that follow it are one rate, and the method is its own control."
    )
    spreads = [each.spread for each in found if each.method == "ucb" and each.spread is not None]
    if spreads and max(spreads) < STILL:
        said += " So it is with `ucb`, whose sigma follows plain gradients."
    heads = ["table", "ours", "ACC", "control", "its ACC", "difference", "twice the combined spread"]
    rows = [each.cells for each in found]
    return f"{wrapped(said)}\n\n{markdown_table([*heads, 'log sigma varies by', 'better?'], rows)}"


def counted(found: Sequence[Compared]) -> str:
    """Say how often ours is better than its own control, and how often than another method's."""
    own, others = ([each.is_better for each in found if each.is_own is own] for own in (True, False))
    said = []
    if own:
        said.append(
            f"Rates that follow each weight's uncertainty are better than their own control by more than twice the "
            f"combined spread in {sum(own)} of {len(own)} comparisons."
        )
    if others:
        said.append(
            f"`ucb-ng` is better than `uniform-lr`, from which it differs in more than the rates, in {sum(others)} of "
            f"{len(others)}."
        )
    return " ".join(said)


def _controlled(table: Table, lines: Sequence[Line], results: Path) -> Iterator[Compared]:
    """Yield our rows, each beside every control of the same size."""
    measured = {line.name: line for line in lines if line.acc}
    for row in table.rows:
        line = measured.get(row.name)
        if line is None or row.method not in OURS or row.same_as or "uniform" in row.variant:
            continue
        spread = sigma_spread(results_of(table, row, results))
        for name in CONTROLS[row.method]:
            if (control := measured.get("-".join(filter(None, (name, row.variant))))) is not None:
                ours, theirs, *between, said = beside(_acc(line), _acc(control))
                names = [f"`{table.id}`", f"`{line.name}`", ours, f"`{control.name}`", theirs]
                cells = [*names, *between, "-" if spread is None else f"{spread:.2g}", said]
                yield Compared(row.method, name == CONTROLS[row.method][0], spread, said == "yes", cells)


def sigma_spread(found: Sequence[Mapping[str, object]]) -> float | None:
    """Return how much log sigma varies within the first weight tensor, in the mean of several runs."""
    spreads = [
        next(iter(moved.values()))["std_log_sigma"]
        for run in found
        if isinstance(moved := run.get("sigma"), dict) and moved
    ]
    return statistics.mean(spreads) if spreads else None


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


def standings(lines: Lines) -> Iterator[tuple[str, dict[str, Line]]]:
    """Yield a table's name, with the net's size, and by method who learnt its tasks one after another."""
    for table in (tables()[name] for name in SEVERAL_HEADS):
        for size in sorted({row.variant for row in table.rows if row.method == "ord-ft"}):
            among = {
                line.name.removesuffix(f"-{size}"): line
                for line in lines[table.id]
                if line.acc and _is_rival(table.row(line.name), size)
            }
            if len(among) > 1 and any(name in among for name in OURS):
                yield f"`{table.id}`" + (f", {size}" if size else ""), among


def best_of(among: Mapping[str, Line]) -> str:
    """Say who has the highest ACC, and which."""
    best = max(among, key=lambda name: _acc(among[name]).value)
    return f"`{best}` {figure(_acc(among[best]))}"


def rivals(lines: Lines) -> str:
    """Say how UCB stands among the methods that keep no data."""
    rows, better = [], {name: list[str]() for name in OURS}
    for where, among in standings(lines):
        cells = [_cell(among.get(name)) for name in (*OURS, "ucb-p", *RIVALS)]
        rows.append([where, *cells, best_of(among)])
        for ours in OURS:
            if ours in among:
                above = [f"`{name}`" for name in among if _is_above(among[name], among[ours])]
                better[ours].append(f"in {where} {', '.join(above) or 'no other'}")
    if not rows:
        return ""
    ucb, ng = ("; ".join(better[name]) for name in OURS)
    said = (
        "How does UCB stand among the others? Of all methods that learn the tasks one after another (joint training, "
        f"a bound, is left out), better than the paper's `ucb` by more than twice the combined spread are {ucb}. "
        f"Better than `ucb-ng`, which is ours, are {ng}."
    )
    heads = ["several heads", *(f"`{name}`" for name in (*OURS, "ucb-p", *RIVALS)), "the best"]
    return f"{wrapped(said)}\n\n{markdown_table(heads, rows)}"


def headline(results: Path = ROOT / "results") -> str:
    """Return the ACC of UCB, its control and fine-tuning beside the paper's, and the best: a few lines for a hurry."""
    lines = {name: compared(tables()[name], results) for name in SEVERAL_HEADS}
    heads = ["", "UCB in the paper", *(f"`{name}`" for name in (*OURS, "uniform-lr"))]
    rows = [
        [
            where,
            _shown(among, "ucb", "paper_acc"),
            *(_shown(among, name, "acc") for name in (*OURS, "uniform-lr")),
            _shown(among, "ord-ft", "paper_acc"),
            _shown(among, "ord-ft", "acc"),
            best_of(among),
        ]
        for where, among in standings(lines)
    ]
    return markdown_table([*heads, "fine-tuning in the paper", "`ord-ft`", "the best"], rows)


def _shown(among: Mapping[str, Line], name: str, which: str) -> str:
    """Return one of a line's figures, or a dash."""
    measure = getattr(among[name], which) if name in among else None
    return "-" if measure is None else figure(measure)


def _is_rival(row: Row, size: str) -> bool:
    """Whether a row learns the tasks one after another with a net of this size."""
    return row.method is not None and not row.method.endswith("-jt") and row.variant.endswith(size)


def _is_above(line: Line, other: Line) -> bool:
    return beside(_acc(line), _acc(other))[-1] == "yes"


def _acc(line: Line) -> Measure:
    assert line.acc is not None
    return line.acc


def _cell(line: Line | None) -> str:
    if line is None:
        return "-"
    return figure(_acc(line)) + (f", BWT {line.bwt.value:+z.2f}" if line.bwt else "")
