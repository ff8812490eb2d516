"""Which columns of a table are the label and the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ucb.storage import ceilings
from ucb.waves.sources.examples import Shape
from ucb.waves.sources.words import counted, listed, one_form, short

USUAL_LABELS = ("label", "class", "target")
PANDAS_INDEX = "__index_level_"
NOT_THE_MODELS = ("column is not the model's and is left out", "columns are not the model's and are left out")


@dataclass(frozen=True)
class Choice:
    """The positions of the label, if it is asked for, and of the numbers; the numbers' names; what was left out."""

    where: str
    label: int | None
    positions: list[int]
    names: list[str]
    remarks: list[str]


def choose(
    where: str,
    header: Sequence[str],
    *,
    labelled: bool,
    label: str | None = None,
    columns: list[str] | None = None,
    like: Shape | None = None,
) -> Choice:
    """Choose a table's columns by their names.

    With ``columns``, those of the model, they are found in any order, others are left out with a remark, and missing
    ones are named. Without, all columns but the label are the numbers. Columns without a name (as a saved index has)
    are left out.
    """
    if len(header) > ceilings.COLUMNS:
        raise ValueError(f"{where} has {len(header):,} columns, and {ceilings.COLUMNS:,} are the most")
    names = [one_form(name).strip() for name in header]
    named = [place for place, name in enumerate(names) if name and not name.startswith(PANDAS_INDEX)]
    if twice := [name for name, times in Counter(names[place] for place in named).items() if times > 1]:
        raise ValueError(f"{where}: more than one column is called {short(twice[0])!r}")
    at = {names[place]: place for place in named}
    wanted = None if columns is None else [one_form(name).strip() for name in columns]
    own = set(wanted or ())
    label_at = _label(where, at, label, own) if labelled else None
    remarks = []
    if nameless := len(names) - len(named):
        remarks.append(counted(nameless, "column without a name is left out", "columns without names are left out"))
    if wanted is not None:
        if missing := [name for name in wanted if name not in at]:
            raise ValueError(f"{where} lacks {counted(len(missing), 'column', 'columns')}: {listed(missing)}")
        positions = [at[name] for name in wanted]
        ignored = [name for name, place in at.items() if name not in own and place != label_at]
    else:
        positions = [place for place in named if place != label_at]
        ignored = []
        usual = _usual(at)
        if not labelled and like is not None and len(positions) == like[0] + 1 and len(usual) == 1:
            ignored = usual
            positions.remove(at[usual[0]])
    if ignored:
        remarks.append(f"{counted(len(ignored), *NOT_THE_MODELS)}: {listed(ignored)}")
    if not positions:
        raise ValueError(f"{where} has no columns of numbers beside its label")
    if like is not None and len(positions) != like[0]:
        raise ValueError(f"{where} has {len(positions)} columns of numbers, and the model learnt rows of {like[0]}")
    return Choice(where, label_at, positions, [names[place] for place in positions], remarks)


def _label(where: str, at: dict[str, int], label: str | None, wanted: Collection[str]) -> int:
    """Return the position of the label's column."""
    if label is not None:
        name = one_form(label).strip()
        if name not in at:
            raise ValueError(f"{where} has no column {label!r}: it has {listed(list(at))}")
        if name in wanted:
            raise ValueError(f"{where}: column {label!r} is one of the model's numbers, so it cannot be the label")
        return at[name]
    usual = _usual(at, wanted)
    if len(usual) != 1:
        why = f"{listed(usual)} could each be the label" if usual else "no column is called label, class or target"
        raise ValueError(f"{where}: {why}: name the label's column with --label, one of {listed(list(at))}")
    return at[usual[0]]


def _usual(at: dict[str, int], wanted: Collection[str] = ()) -> list[str]:
    return [name for name in at if name.casefold() in USUAL_LABELS and name not in wanted]
