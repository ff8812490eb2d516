"""Reading the trials of earlier, and refusing those of another search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ucb.storage import read_object
from ucb.tuning.choice import Found
from ucb.tuning.searched import Search


class RoundedTrial(Found):
    """A trial of the earliest searches. What was not printed of it is not known, and whoever needs it is told."""

    def __init__(self, trial: Found, path: Path) -> None:
        super().__init__(trial)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise OSError(
            f"{self.path} has only rounded figures of {json.dumps(self['settings'])}, and no {name}: remove this trial "
            "from it, and it is tried anew"
        )


def trials_in(path: Path, search: Search) -> list[Found]:
    """Return the trials in a search's file; trials of another search are refused, and nothing happens to them."""
    if not path.is_file():
        return []
    kept = read_object(path)
    trials = kept.get("trials")
    if not isinstance(trials, list) or not all(isinstance(each, dict) and "settings" in each for each in trials):
        raise OSError(f"{path} is damaged: it holds no list of trials; remove it, or choose another --results")
    for number, trial in enumerate(trials, 1):
        if missing := lacking(trial):
            what = f"trial {number} has no {' and no '.join(missing)}"
            raise OSError(f"{path} is damaged: {what}; mend or remove it, or choose another --results")
    if differs := differences(kept, search):
        raise ValueError(
            f"{path} holds {len(trials)} trials of another search ({'; '.join(differs)}): choose another --name or "
            "--results, or remove the file"
        )
    return [RoundedTrial(each, path) if is_rounded(each) else each for each in trials]


def is_rounded(trial: Found) -> bool:
    """Whether a trial is of the earliest searches: they kept what was printed of it, with four digits."""
    return trial.get("rounded") is True


def lacking(trial: Found) -> list[str]:
    """Return what a trial should hold and does not."""
    if "score" not in trial:
        return ["score"]
    if trial["score"] is None:
        needed = ["failed"]
    elif is_rounded(trial):
        needed = ["risen"]
    else:
        needed = ["error", "risen", "acc", "bwt", "seconds"]
    return [name for name in needed if name not in trial]


def differences(kept: dict[str, Any], search: Search) -> list[str]:
    """Say in what the search of a file differs from this one."""
    # A choice that a file does not name was not known then: there was only what is the default now. Early files have
    # the benchmark as their name, and whether all tasks judged is said by their folder.
    then = Search("", "").identity | {
        "benchmark": kept.get("name"),
        "method": search.method,
        "all_tasks": search.all_tasks,
    }
    then |= kept
    mine = json.loads(json.dumps(search.identity))  # a tuple is a list in a file
    return [f"{name} was {_word(then[name])} and is {_word(now)}" for name, now in mine.items() if then[name] != now]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
