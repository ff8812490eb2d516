"""The command that repeats a run."""

from __future__ import annotations

import shlex
from typing import Any

OPTIONS = ("seed", "tasks", "blur", "faces", "net", "device")
FLAGS = ("single_head", "apart", "task_told")


def command_of(config: dict[str, Any], between: str = " ") -> str:
    """Return the ``ucb run`` that gives this configuration; ``between`` stands between its options."""
    words = [["ucb", "run", config["benchmark"]], ["--method", config["method"]]]
    words += [[f"--{name}", _word(config[name])] for name in OPTIONS if config.get(name) is not None]
    words += [[f"--{name.replace('_', '-')}"] for name in FLAGS if config.get(name)]
    words += [["--data", folder] for folder in config.get("data") or []]
    for part in ("net_options", "training", "settings"):
        for name, value in (config.get(part) or {}).items():
            words += _setting(name, value)
    return between.join(shlex.join(option) for option in words)


def _setting(name: str, value: Any) -> list[list[str]]:
    if isinstance(value, list):  # the units of hidden layers: the one setting that is a list
        return [[f"--{name}", _word(each)] for each in value]
    return [["--set", f"{name}={_word(value)}"]]


def _word(value: Any) -> str:
    """Return a value as the command takes it: 2.0 is no whole number there, but 2 is a number of any kind."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
