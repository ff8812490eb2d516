"""What is measured already, what was cut, what stands in the way, and what is still to run.

A result file that is damaged or incomplete is named, with what is wrong and what to do.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ucb import checks
from ucb.engine import Job
from ucb.engine.runner import CONFIG, RESULT, read_job
from ucb.experiments.reproduce.definitions import ROOM, ReproducedRow, ReproducedTable, differences, home_of, job_of
from ucb.storage import read_json

State = Literal["measured", "run, not kept", "cut", "missing", "other settings", "damaged"]


class DamagedResultError(OSError):
    """Result files that cannot be used: a line for each, which names the file, the damage and the remedy."""


@dataclass(frozen=True)
class RunProgress:
    """How far a run is."""

    state: State
    why: tuple[str, ...] = ()
    """With ``other settings``: in what it is not what would be run now. With ``damaged``: what is wrong."""
    remove: tuple[Path, ...] = ()
    """What must be gone before it can be run now."""


@dataclass(frozen=True, kw_only=True)
class TableRun(RunProgress):
    """One run: what it is, where it happens, where its result is kept, and how far it is."""

    table: str
    row: str
    job: Job
    folder: Path
    result: Path
    has_recipe: bool = True
    """Whether its settings were chosen; otherwise they are the method's defaults."""

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.row} seed {self.job.seed}"

    @property
    def to_do(self) -> bool:
        """Whether there is something to do."""
        return self.state in ("run, not kept", "cut", "missing")


def plan(
    table: ReproducedTable,
    seeds: Sequence[int],
    *,
    only: Iterable[str] = (),
    device: str = "cpu",
    results: Path = Path("results"),
    runs: Path = Path("runs"),
) -> list[TableRun]:
    """Return every run of a table, row by row; ``only`` keeps the methods or rows with these names."""
    planned: dict[Path, TableRun] = {}
    for row in choose_rows(table, only):
        home, own = home_of(table, row)
        if own.method is None:
            continue
        for seed in seeds:
            job = job_of(own, seed, device)
            folder = runs / ROOM / home.id / f"{own.name}-seed{seed}"
            result = results / ROOM / home.id / f"{own.name}-seed{seed}.json"
            at: dict[str, Any] = dataclasses.asdict(progress_of(job, folder, result))
            at |= {"table": home.id, "row": own.name, "job": job, "folder": folder, "result": result}
            planned.setdefault(result, TableRun(**at, has_recipe=own.has_recipe))
    return list(planned.values())


def choose_rows(table: ReproducedTable, only: Iterable[str]) -> list[ReproducedRow]:
    """Return the rows of these methods or names, or all."""
    names = list(only)
    known = {name for row in table.rows for name in (row.method, row.name) if name}
    for name in names:
        if name not in known:
            near = checks.nearest(name, sorted(known))
            raise ValueError(f"the table {table.id} has no row or method {name!r}: {near}")
    return [row for row in table.rows if not names or row.method in names or row.name in names]


def progress_of(job: Job, folder: Path, result: Path) -> RunProgress:
    """Return how far a run is, from its kept result and its folder together."""
    kept = _progress_of_result(job, result)
    if kept is not None and kept.state == "measured":
        return kept
    there = [each for each in (kept, _progress_of_folder(job, folder)) if each is not None]
    hindering = [each for each in there if each.remove]
    if not hindering:
        return there[0] if there else RunProgress("missing")
    why = dict.fromkeys(reason for each in hindering for reason in each.why)
    return RunProgress(hindering[0].state, tuple(why), tuple(path for each in hindering for path in each.remove))


def _progress_of_result(job: Job, path: Path) -> RunProgress | None:
    if not path.is_file():
        return None
    result = result_in(path)
    if damage := damage_of(result, job.seed):
        return RunProgress("damaged", (f"{path} is {damage}",), (path,))
    differs = differences(result["config"], job)
    return RunProgress("other settings", tuple(differs), (path,)) if differs else RunProgress("measured")


def _progress_of_folder(job: Job, folder: Path) -> RunProgress | None:
    if not (folder / CONFIG).is_file():
        return None
    try:
        old = read_job(folder)
    except (OSError, ValueError, TypeError) as error:
        return RunProgress("damaged", (str(error),), (folder,))
    if differs := differences(dataclasses.asdict(old), job):
        return RunProgress("other settings", tuple(differs), (folder,))
    result = folder / RESULT
    if not result.is_file():
        if old.device != job.device:  # to go on elsewhere would not give the same figures
            return RunProgress("other settings", (f"device was {old.device} and is {job.device}",), (folder,))
        return RunProgress("cut")
    if damage := damage_of(result_in(result), job.seed):
        return RunProgress("damaged", (f"{result} is {damage}",), (result,))
    return RunProgress("run, not kept")


def results_of(table: ReproducedTable, row: ReproducedRow, results: Path) -> list[dict[str, Any]]:
    """Return a row's results, in the order of their seeds."""
    home, own = home_of(table, row)
    pattern = re.compile(re.escape(own.name) + r"-seed(\d+)\.json")
    found, damaged = {}, []
    for path in sorted((results / ROOM / home.id).glob(f"{own.name}-seed*.json")):
        if match := pattern.fullmatch(path.name):
            seed = int(match[1])
            found[seed] = result_in(path)
            if damage := damage_of(found[seed], seed):
                damaged.append(f"{path} is {damage}; remove it, and ucb reproduce {home.id} makes it anew")
    if damaged:
        raise DamagedResultError("\n".join(damaged))
    return [found[seed] for seed in sorted(found)]


def result_in(path: Path) -> Any:
    """Return what a file holds; None where that is no JSON."""
    try:
        return read_json(path)
    except ValueError:
        return None


def damage_of(result: Any, seed: int) -> str:
    """Say what is wrong with the result of that seed; nothing where a table can use it."""
    if not isinstance(result, dict):
        return "damaged: it holds no JSON object"
    if missing := [name for name in ("seed", "acc", "bwt", "config") if name not in result]:
        return f"incomplete: it has no {' and no '.join(missing)}"
    if result["seed"] != seed:
        return f"damaged: it is named after seed {seed} and holds seed {result['seed']!r}"
    if not isinstance(result["config"], dict):
        return "damaged: its config is no JSON object"
    if not _is_number(result["acc"]):
        return f"damaged: its acc is {result['acc']!r}"
    if result["bwt"] is not None and not _is_number(result["bwt"]):
        return f"damaged: its bwt is {result['bwt']!r}"
    if "seconds" in result and not _is_number(result["seconds"]):
        return f"damaged: its seconds are {result['seconds']!r}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and checks.is_finite(value)
