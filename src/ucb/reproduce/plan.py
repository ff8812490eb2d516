"""What is measured already, what was cut, and what is still to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ucb.bayes.checks import nearest
from ucb.engine import Job
from ucb.reproduce.definitions import Row, Table, home_of
from ucb.reproduce.found import State, found_of
from ucb.reproduce.jobs import has_recipe, job_of, result_file, run_folder


@dataclass(frozen=True)
class Planned:
    """One run: what it is, where it happens, where its result is kept, and how far it is."""

    table: str
    row: str
    job: Job
    folder: Path
    result: Path
    state: State
    why: tuple[str, ...] = ()
    """With ``other settings``: in what an earlier run is not what would be run now. With ``damaged``: what is wrong."""
    remove: tuple[Path, ...] = ()
    """What stands in the way of running it."""
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
    table: Table,
    seeds: Sequence[int],
    *,
    only: Iterable[str] = (),
    device: str = "cpu",
    results: Path = Path("results"),
    runs: Path = Path("runs"),
) -> list[Planned]:
    """Return every run of a table, row by row; ``only`` keeps the methods or rows with these names."""
    found: dict[Path, Planned] = {}
    for row in chosen(table, only):
        home, kept = home_of(table, row)
        if kept.method is None:
            continue
        for seed in seeds:
            job = job_of(kept, seed, device)
            folder = run_folder(runs, home.id, kept.name, seed)
            result = result_file(results, home.id, kept.name, seed)
            there = found_of(job, folder, result)
            places = (folder, result, there.state, there.why, there.remove)
            found.setdefault(result, Planned(home.id, kept.name, job, *places, has_recipe(kept)))
    return list(found.values())


def chosen(table: Table, only: Iterable[str]) -> list[Row]:
    """Return the rows of these methods or names, or all."""
    names = list(only)
    known = {name for row in table.rows for name in (row.method, row.name) if name}
    for name in names:
        if name not in known:
            raise ValueError(f"the table {table.id} has no row or method {name!r}: {nearest(name, sorted(known))}")
    return [row for row in table.rows if not names or row.method in names or row.name in names]
