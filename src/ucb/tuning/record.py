"""Everything that was tried, in a file that grows with every trial, and the recipe that comes of it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ucb.engine.checkpoint import write_atomically
from ucb.tuning.choice import ALL_TASKS, TWO_TASKS, Found, choose
from ucb.tuning.space import Grid, Point


@dataclass(frozen=True)
class Search:
    """What is searched: the benchmark, and how every trial learns it."""

    benchmark: str
    method: str
    epochs: int = 6
    device: str = "cpu"
    blur: float | None = None
    all_tasks: bool = False
    seed: int = 0
    single_head: bool = False
    net: str | None = None
    net_options: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    """Under which recipes and trials are kept; None is the benchmark's name."""
    apart: bool = False
    task_told: bool = False

    @property
    def kind(self) -> str:
        """The folder of recipes and trials."""
        return self.name or (self.benchmark if self.blur is None else f"{self.benchmark}-blurred")

    @property
    def rule(self) -> str:
        """How the settings are chosen."""
        return ALL_TASKS if self.all_tasks else TWO_TASKS


class Record:
    """The trials of one search. A search that was cut goes on with those that are in the file."""

    def __init__(self, search: Search, results: Path) -> None:
        self.search = search
        which = f"{search.kind}-all-tasks" if search.all_tasks else search.kind
        self.path = results / "tuning" / which / f"{search.method}.json"
        self.trials: list[Found] = []
        if self.path.is_file():
            kept = json.loads(self.path.read_text())
            self.trials = kept["trials"] if self._is_of_this(kept) else []

    def _is_of_this(self, kept: dict[str, Any]) -> bool:
        """Whether a file's trials learnt as ours do; on which device does not matter."""
        mine = dataclasses.asdict(self.search)
        # What a file does not name was not known then; of the last two there was one choice.
        known = mine | {"apart": False, "task_told": False} | kept
        keys = ("epochs", "blur", "seed", "single_head", "net", "net_options", "apart", "task_told")
        return all(known[key] == mine[key] for key in keys)

    def find(self, point: Point) -> Found | None:
        """Return what was found of some settings, if they have been tried."""
        return next((trial for trial in self.trials if trial["settings"] == point), None)

    def add(self, found: Found) -> None:
        """Add a trial, at once also in the file."""
        self.trials.append(found)
        head = {**dataclasses.asdict(self.search), "rule": self.search.rule}
        _write(self.path, {**head, "trials": self.trials})

    def recipe(self, grid: Grid, points: list[Point], epochs: int) -> dict[str, Any]:
        """Return the recipe: the chosen settings, and how they were found."""
        found = [trial for point in points if (trial := self.find(point)) is not None]
        best = choose(found, self.search.all_tasks)
        which = "all tasks" if self.search.all_tasks else "the first two tasks"
        how = f"chosen of {len(found)} on held-out data of {which}, seed {self.search.seed}: NLL {best['score']:.4f}, "
        how += f"ACC {best['acc']:.2f}"
        if epochs != self.search.epochs:
            how += f", {self.search.epochs} epochs a task"
        return {"training": {"epochs": epochs}, "settings": best["settings"], "found": how, "grid": grid}

    def write_recipes(self, recipe: dict[str, Any], folder: Path) -> list[Path]:
        """Write a method's recipe and, for UCB, its control's; return the files."""
        written = {self.search.method: recipe}
        if self.search.method == "ucb":
            control = {"found": "UCB's own settings, so that nothing but the uncertainty differs", "grid": {}}
            written["uniform-lr"] = recipe | control
        for method, values in written.items():
            _write(folder / self.search.kind / f"{method}.json", values)
        return [folder / self.search.kind / f"{method}.json" for method in written]


def _write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())
