"""What a search is about: everything that decides what a trial of some settings finds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from ucb.tuning.choice import ALL_TASKS, TWO_TASKS


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

    def __post_init__(self) -> None:
        if self.name is not None and (self.name in ("", ".", "..") or any(mark in self.name for mark in "/\\")):
            raise ValueError(f"--name takes the plain name of a folder, without / and \\, not {self.name!r}")

    @property
    def kind(self) -> str:
        """The folder of recipes and trials."""
        return self.name or (self.benchmark if self.blur is None else f"{self.benchmark}-blurred")

    @property
    def rule(self) -> str:
        """How the settings are chosen."""
        return ALL_TASKS if self.all_tasks else TWO_TASKS

    @property
    def identity(self) -> dict[str, Any]:
        """What trials must agree in to be compared; on which device they learn, and under which name, is no matter."""
        values = dataclasses.asdict(self)
        for name in ("device", "name"):
            del values[name]
        if self.blur is not None:
            del values["epochs"]  # tasks that fade into each other pass by once, whatever it says
        return values
