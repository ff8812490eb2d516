"""UCB beside others of our own rows: its controls, which tell no weight from another, and the best of the baselines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tools.docs.markdown import code, wrap
from tools.docs.markdown import table as markdown_table
from ucb.experiments.reproduce.compare import ComparedRow, Measure, compare_table
from ucb.experiments.reproduce.definitions import ReproducedRow, ReproducedTable, tables
from ucb.experiments.reproduce.planning import results_of

ROOT = Path(__file__).parents[2]
Lines = Mapping[str, Sequence[ComparedRow]]

CONTROLS = {"ucb": ("uniform-lr",), "ucb-ng": ("ucb-ng-uniform", "uniform-lr")}
"""Of each method of ours, whose rates follow the uncertainty, first the same without that: its own control."""
OURS = tuple(CONTROLS)
RIVALS = ("ord-ft", "hat", "packnet")
STILL = 0.01
"""Where the logarithm varies by less, all are the same within a percent."""
SEVERAL_HEADS = ("5split-mnist", "permuted-mnist", "2split-mnist")

Standing = Literal["better", "within the spread", "worse", "one seed cannot tell"]
IN_WORDS: dict[Standing, str] = {"better": "yes", "within the spread": "no, within the spread", "worse": "no, worse"}


class Beside(NamedTuple):
    """A figure beside another: how far apart, how far the spreads of both allow, and what follows."""

    difference: float
    allowed: float | None
    standing: Standing


class Controlled(NamedTuple):
    """A row of ours beside a control."""

    table: str
    method: str
    ours: ComparedRow
    control: ComparedRow
    is_own: bool
    """Whether the method differs in the rates alone; its settings were searched for themselves."""
    sigma_spread: float | None
    """How much log sigma varies within the first layer."""
    beside: Beside


def compare_measures(ours: Measure, other: Measure) -> Beside:
    """Compare two figures: twice the combined spread decides; figures of one seed have none."""
    difference = ours.value - other.value
    if ours.spread is None or other.spread is None:
        return Beside(difference, None, "one seed cannot tell")
    allowed = 2 * math.hypot(ours.spread, other.spread)
    standing: Standing = "within the spread"
    if abs(difference) > allowed:
        standing = "better" if difference > 0 else "worse"
    return Beside(difference, allowed, standing)


def compare_controls(lines: Lines, results: Path) -> list[Controlled]:
    """Return our rows of all tables, each beside every control of the same size."""
    return [each for table in tables().values() for each in _compare_in(table, lines[table.id], results)]


def _compare_in(table: ReproducedTable, lines: Sequence[ComparedRow], results: Path) -> Iterator[Controlled]:
    measured = {line.name: line for line in lines if line.acc}
    for row in table.rows:
        line = measured.get(row.name)
        if line is None or row.method not in OURS or row.same_as or "uniform" in row.variant:
            continue
        spread = sigma_spread(results_of(table, row, results))
        for name in CONTROLS[row.method]:
            if (control := measured.get("-".join(filter(None, (name, row.variant))))) is not None:
                beside = compare_measures(_acc(line), _acc(control))
                is_own = name == CONTROLS[row.method][0]
                yield Controlled(table.id, row.method, line, control, is_own, spread, beside)


def sigma_spread(found: Sequence[Mapping[str, object]]) -> float | None:
    """Return how much log sigma varies within the first weight tensor, in the mean of several runs."""
    spreads = [
        next(iter(moved.values()))["std_log_sigma"]
        for run in found
        if isinstance(moved := run.get("sigma"), dict) and moved
    ]
    return statistics.mean(spreads) if spreads else None


def sigma_stays(found: Sequence[Controlled]) -> bool:
    """Whether sigma of the paper's UCB never left its start, as far as is known."""
    spreads = [each.sigma_spread for each in found if each.method == "ucb" and each.sigma_spread is not None]
    return bool(spreads) and max(spreads) < STILL


def count_better(found: Sequence[Controlled], *, own: bool) -> tuple[int, int]:
    """Return how often ours is better than its own control, or than another method's, and of how many."""
    standings = [each.beside.standing for each in found if each.is_own is own]
    return standings.count("better"), len(standings)


def describe_controls(found: Sequence[Controlled]) -> str:
    """Say whether uncertainty did the work."""
    if not found:
        return ""
    said = (
        "Does the uncertainty do the work? `uniform-lr` is UCB with one rate for all weights, `ucb-ng-uniform` is "
        "UCB-NG with one rate for all weights of a tensor, the mean of those that it would have given them. "
    )
    better, of = count_better(found, own=True)
    if of:
        said += (
            "Rates that follow each weight's uncertainty are better than their own control by more than twice the "
            f"combined spread in {better} of {of} comparisons. "
        )
    better, of = count_better(found, own=False)
    if of:
        said += (
            f"`ucb-ng` is better than `uniform-lr`, from which it differs in more than the rates, in {better} of {of}. "
        )
    said += (
        "Each control was searched for itself and may have another lr, temperature or prior, too: "
        "where log sigma hardly varies, a difference tells how well each was searched and nothing of uncertainty. "
        "Beside each stands how much log sigma varies "
        "within the first layer (standard deviation, mean over seeds): where that is near 0, sigma never left its "
        "start, rates that follow it are one rate, and the method is its own control."
    )
    if sigma_stays(found):
        said += " So it is with `ucb`, whose sigma follows plain gradients."
    heads = ["table", "ours", "ACC", "control", "its ACC", "difference", "twice the combined spread"]
    return f"{wrap(said)}\n\n{markdown_table([*heads, 'log sigma varies by', 'better?'], map(_cells, found))}"


def _cells(each: Controlled) -> list[str]:
    difference, allowed, standing = each.beside
    names = [f"`{each.table}`", f"`{each.ours.name}`", figure(_acc(each.ours))]
    names += [f"`{each.control.name}`", figure(_acc(each.control)), f"{difference:+z.2f}"]
    varies = "-" if each.sigma_spread is None else f"{each.sigma_spread:.2g}"
    return [*names, "-" if allowed is None else f"{allowed:.2f}", varies, IN_WORDS.get(standing, standing)]


def figure(measure: Measure) -> str:
    """Return a figure with its spread."""
    return f"{measure.value:.2f}" + ("" if measure.spread is None else f" +- {measure.spread:.2f}")


def standings(lines: Lines) -> Iterator[tuple[str, dict[str, ComparedRow]]]:
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


def best_of(among: Mapping[str, ComparedRow]) -> str:
    """Say who has the highest ACC, and which."""
    best = max(among, key=lambda name: _acc(among[name]).value)
    return f"`{best}` {figure(_acc(among[best]))}"


def better_methods(lines: Lines) -> dict[str, dict[str, list[str]]]:
    """Return for each method of ours, by table and size, which methods are better than it."""
    return {
        ours: {
            where: [name for name in among if _is_above(among[name], among[ours])]
            for where, among in standings(lines)
            if ours in among
        }
        for ours in OURS
    }


def describe_rivals(lines: Lines) -> str:
    """Say how UCB stands among the methods that keep no data."""
    shown = (*OURS, "ucb-p", *RIVALS)
    rows = [[where, *(_cell(among.get(name)) for name in shown), best_of(among)] for where, among in standings(lines)]
    if not rows:
        return ""
    ucb, ng = (
        "; ".join(f"in {where} {code(names) or 'no other'}" for where, names in better.items())
        for better in better_methods(lines).values()
    )
    said = (
        "How does UCB stand among the others? Of all methods that learn the tasks one after another (joint training, "
        f"a bound, is left out), better than the paper's `ucb` by more than twice the combined spread are {ucb}. "
        f"Better than `ucb-ng`, which is ours, are {ng}."
    )
    return f"{wrap(said)}\n\n{markdown_table(['several heads', *(f'`{name}`' for name in shown), 'the best'], rows)}"


def headline(results: Path = ROOT / "results") -> str:
    """Return the ACC of UCB, its control and fine-tuning beside the paper's, and the best: a few lines for a hurry."""
    lines = {name: compare_table(tables()[name], results) for name in SEVERAL_HEADS}
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


def _shown(among: Mapping[str, ComparedRow], name: str, which: Literal["acc", "paper_acc"]) -> str:
    """Return one of a line's figures, or a dash."""
    measure = getattr(among[name], which) if name in among else None
    return "-" if measure is None else figure(measure)


def _is_rival(row: ReproducedRow, size: str) -> bool:
    """Whether a row learns the tasks one after another with a net of this size."""
    return row.method is not None and not row.method.endswith("-jt") and row.variant.endswith(size)


def _is_above(line: ComparedRow, other: ComparedRow) -> bool:
    return compare_measures(_acc(line), _acc(other)).standing == "better"


def _acc(line: ComparedRow) -> Measure:
    assert line.acc is not None
    return line.acc


def _cell(line: ComparedRow | None) -> str:
    if line is None:
        return "-"
    return figure(_acc(line)) + (f", BWT {line.bwt.value:+z.2f}" if line.bwt else "")
