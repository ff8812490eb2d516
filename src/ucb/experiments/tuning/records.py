"""Everything that was tried, in a file that grows with every trial, and the recipe that comes of it.

Trials of earlier calls are taken up; those of another search are refused.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ucb.experiments.tuning.search import Grid, Point, Search, Trial, choose, was_cut
from ucb.storage import read_object, rename_old_keys, write_atomically

CONTROL, CONTROLS_SETTINGS = "uniform-lr", "UCB's own settings"


class RoundedTrial(Trial):
    """A trial of the earliest searches. What was not printed of it is not known, and whoever needs it is told."""

    def __init__(self, trial: Trial, path: Path) -> None:
        super().__init__(trial)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise OSError(
            f"{self.path} has only rounded figures of {json.dumps(self['settings'])}, and no {name}: remove this trial "
            "from it, and it is tried anew"
        )


class TrialRecord:
    """The trials of one search. A search that was cut goes on with those that are in the file."""

    def __init__(self, search: Search, results: Path) -> None:
        self.search = search
        which = f"{search.kind}-all-tasks" if search.all_tasks else search.kind
        self.path = results / "tuning" / which / f"{search.method_name}.json"
        self.trials = saved_trials(self.path, search)

    def find(self, point: Point) -> Trial | None:
        """Return what was found of some settings, if they have been tried."""
        return next((trial for trial in self.trials if trial["settings"] == point), None)

    def lacks(self, point: Point) -> bool:
        """Whether some settings have yet to be judged: they have not been tried, or were cut."""
        trial = self.find(point)
        return trial is None or was_cut(trial)

    def add(self, new: Trial) -> None:
        """Add a trial, at once also in the file; it replaces one of the same settings that was cut."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(self.path.parent):  # another process may add trials to the same search
            earlier = saved_trials(self.path, self.search)
            trials = [trial for trial in earlier if trial["settings"] != new["settings"]] + [new]
            _write(self.path, dataclasses.asdict(self.search) | {"rule": self.search.rule, "trials": trials})
        self.trials = trials

    def recipe(self, grid: Grid, points: list[Point], epochs: int) -> dict[str, Any]:
        """Return the recipe: the chosen settings, and how they were found.

        ``grid`` holds the values that occur in the points; the points may be fewer than its product. They are what is
        chosen from; ``tried`` in the recipe counts every trial of the record, also those of other points before.
        """
        judged = [trial for point in points if (trial := self.find(point)) is not None and not was_cut(trial)]
        best = choose(judged, self.search.all_tasks)
        which, score = ("all tasks", "NLL") if self.search.all_tasks else ("the first two tasks", "projected NLL")
        how = f"chosen of {len(judged)} on held-out data of {which}, seed {self.search.seed}: "
        how += f"{score} {best['score']:.4f}, ACC {best['acc']:.2f}"
        if epochs != self.search.epochs:
            how += f", {self.search.epochs} epochs a task"
        values = {"training": {"epochs": epochs}, "settings": best["settings"], "found": how, "grid": grid}
        return values | {"tried": len(self.trials)}

    def write_recipes(self, recipe: dict[str, Any], folder: Path) -> list[Path]:
        """Write a method's recipe and, for UCB, its control's, unless that was searched itself; return the files."""
        recipes = {self.search.method_name: recipe}
        if self.search.method == "ucb" and self.find_searched_control(folder) is None:
            same = {name: recipe[name] for name in ("training", "settings")}
            why = f"{CONTROLS_SETTINGS}, so that nothing but the uncertainty differs"
            recipes[CONTROL] = same | {"found": why, "grid": {}}
        paths = [folder / self.search.kind / f"{method}.json" for method in recipes]
        for path, values in zip(paths, recipes.values(), strict=True):
            _write(path, values)
        return paths

    def find_searched_control(self, folder: Path) -> Path | None:
        """Return the recipe of UCB's control, where it comes from a search of its own."""
        path = folder / self.search.kind / f"{CONTROL}.json"
        if self.search.method != "ucb" or not path.is_file():
            return None
        return None if str(read_object(path).get("found")).startswith(CONTROLS_SETTINGS) else path


def saved_trials(path: Path, search: Search) -> list[Trial]:
    """Return the trials in a search's file; trials of another search are refused, and nothing happens to them."""
    if not path.is_file():
        return []
    saved = read_object(path)
    trials = saved.get("trials")
    if not isinstance(trials, list) or not all(isinstance(each, dict) and "settings" in each for each in trials):
        raise OSError(f"{path} is damaged: it holds no list of trials; remove it, or choose another --results")
    for number, trial in enumerate(trials, 1):
        if missing := " and no ".join(name for name in _list_needed(trial) if name not in trial):
            what = f"trial {number} has no {missing}"
            raise OSError(f"{path} is damaged: {what}; mend or remove it, or choose another --results")
    if differs := _differences(saved, search):
        raise ValueError(
            f"{path} holds {len(trials)} trials of another search ({'; '.join(differs)}): choose another --name or "
            "--results, or remove the file"
        )
    for trial in trials:
        trial["settings"] = rename_old_keys(trial["settings"])
    return [RoundedTrial(trial, path) if _is_rounded(trial) else trial for trial in trials]


def _list_needed(trial: Trial) -> list[str]:
    """Return what a trial should hold."""
    if "score" not in trial:
        return ["score"]
    if trial["score"] is None:
        return ["failed"]
    return ["risen"] if _is_rounded(trial) else ["error", "risen", "acc", "bwt", "seconds"]


def _is_rounded(trial: Trial) -> bool:
    """Whether a trial is of the earliest searches: they kept what was printed of it, with four digits."""
    return trial.get("rounded") is True


def _differences(saved: dict[str, Any], search: Search) -> list[str]:
    """Say in what the search of a file differs from this one."""
    # A choice that a file does not name was not known then: there was only what is the default now. Early files have
    # the benchmark as their name, and whether all tasks judged is said by their folder.
    early = {"benchmark": saved.get("name"), "method": search.method, "all_tasks": search.all_tasks}
    then = Search("", "").identity | early | saved
    mine = json.loads(json.dumps(search.identity))  # a tuple is a list in a file
    return [f"{name} was {_word(then[name])} and is {_word(now)}" for name, now in mine.items() if then[name] != now]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
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
