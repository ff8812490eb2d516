"""Reading the trials of earlier, and refusing those of another search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ucb.engine.json_files import read_object
from ucb.tuning.choice import Found
from ucb.tuning.searched import Search


def trials_in(path: Path, search: Search) -> list[Found]:
    """Return the trials in a search's file; trials of another search are refused, and nothing happens to them."""
    if not path.is_file():
        return []
    kept = read_object(path)
    trials = kept.get("trials")
    if not isinstance(trials, list) or not all(isinstance(each, dict) and "settings" in each for each in trials):
        raise OSError(f"{path} is damaged: it holds no list of trials; remove it, or choose another --results")
    if differs := differences(kept, search):
        raise ValueError(
            f"{path} holds {len(trials)} trials of another search ({'; '.join(differs)}): choose another --name or "
            "--results, or remove the file"
        )
    return trials


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
