"""Everything that was tried, in a file that grows with every trial, and the recipe that comes of it."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ucb.storage import read_object, write_atomically
from ucb.tuning.choice import Found, choose, was_cut
from ucb.tuning.kept import trials_in
from ucb.tuning.searched import Search
from ucb.tuning.space import Grid, Point

CONTROL, CONTROLS_SETTINGS = "uniform-lr", "UCB's own settings"


class Record:
    """The trials of one search. A search that was cut goes on with those that are in the file."""

    def __init__(self, search: Search, results: Path) -> None:
        self.search = search
        which = f"{search.kind}-all-tasks" if search.all_tasks else search.kind
        self.path = results / "tuning" / which / f"{search.method}.json"
        self.trials = trials_in(self.path, search)

    def find(self, point: Point) -> Found | None:
        """Return what was found of some settings, if they have been tried."""
        return next((trial for trial in self.trials if trial["settings"] == point), None)

    def lacks(self, point: Point) -> bool:
        """Whether some settings have yet to be judged: they have not been tried, or were cut."""
        found = self.find(point)
        return found is None or was_cut(found)

    def add(self, found: Found) -> None:
        """Add a trial, at once also in the file; it replaces one of the same settings that was cut."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with held(self.path.parent):  # another process may add trials to the same search
            earlier = trials_in(self.path, self.search)
            trials = [trial for trial in earlier if trial["settings"] != found["settings"]] + [found]
            head = {**dataclasses.asdict(self.search), "rule": self.search.rule}
            _write(self.path, {**head, "trials": trials})
        self.trials = trials

    def recipe(self, grid: Grid, points: list[Point], epochs: int) -> dict[str, Any]:
        """Return the recipe: the chosen settings, and how they were found.

        ``grid`` holds the values that occur in the points; the points may be fewer than its product. They are what is
        chosen from; ``tried`` in the recipe counts every trial of the record, also those of other points before.
        """
        found = [trial for point in points if (trial := self.find(point)) is not None and not was_cut(trial)]
        best = choose(found, self.search.all_tasks)
        which, score = ("all tasks", "NLL") if self.search.all_tasks else ("the first two tasks", "projected NLL")
        how = f"chosen of {len(found)} on held-out data of {which}, seed {self.search.seed}: "
        how += f"{score} {best['score']:.4f}, ACC {best['acc']:.2f}"
        if epochs != self.search.epochs:
            how += f", {self.search.epochs} epochs a task"
        values = {"training": {"epochs": epochs}, "settings": best["settings"], "found": how, "grid": grid}
        return values | {"tried": len(self.trials)}

    def write_recipes(self, recipe: dict[str, Any], folder: Path) -> list[Path]:
        """Write a method's recipe and, for UCB, its control's, unless that was searched itself; return the files."""
        written = {self.search.method: recipe}
        if self.search.method == "ucb" and self.searched_control(folder) is None:
            same = {name: recipe[name] for name in ("training", "settings")}
            why = f"{CONTROLS_SETTINGS}, so that nothing but the uncertainty differs"
            written[CONTROL] = same | {"found": why, "grid": {}}
        for method, values in written.items():
            _write(folder / self.search.kind / f"{method}.json", values)
        return [folder / self.search.kind / f"{method}.json" for method in written]

    def searched_control(self, folder: Path) -> Path | None:
        """Return the recipe of UCB's control, where it comes from a search of its own."""
        path = folder / self.search.kind / f"{CONTROL}.json"
        if self.search.method != "ucb" or not path.is_file():
            return None
        return None if str(read_object(path).get("found")).startswith(CONTROLS_SETTINGS) else path


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Wait until no other process holds a folder, and hold it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())
