"""What one call of ``ucb reproduce`` cost: its wall time on its device, and the runs that it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from ucb.devices import device_named
from ucb.engine.report import device_name
from ucb.reproduce.plan import Planned
from ucb.reproduce.running import Outcome
from ucb.storage import write_atomically

ROOM = "calls"
"""Records of calls are in results/calls, a folder for each table."""


class CallRecord:
    """A file that is written when a call begins, and again as each run ends: a call that is cut leaves it too."""

    def __init__(self, table: str, planned: Sequence[Planned], jobs: int, results: Path) -> None:
        waiting = [each for each in planned if each.to_do]
        now = datetime.now(UTC)
        self.path = _claim_path(results / ROOM / table, now)
        self.values: dict[str, Any] = {
            "table": table,
            "begun": now.isoformat(timespec="seconds"),
            "device": device_name(device_named(waiting[0].job.device)),
            "jobs": jobs,
            "asked": [each.name for each in waiting],
            "ended": {},
            "failed": {},
            "is_whole": False,
            "seconds": 0.0,
        }
        self._clock = time.monotonic()
        self._write()

    def add(self, outcome: Outcome) -> None:
        """Note a run that ended, with the seconds that it counted itself (also those of earlier calls), or failed."""
        if outcome.result is None:
            self.values["failed"][outcome.planned.name] = outcome.failure
        else:
            self.values["ended"][outcome.planned.name] = outcome.result.get("seconds")
        self._write()

    def close(self, *, is_whole: bool) -> None:
        """Note the wall time of the call, and whether it came to its end."""
        self.values["is_whole"] = is_whole
        self._write()

    def _write(self) -> None:
        self.values["seconds"] = time.monotonic() - self._clock
        write_atomically(self.path, (json.dumps(self.values, indent=1) + "\n").encode())


def _claim_path(folder: Path, now: datetime) -> Path:
    """Make the file of a call, named after its time, with a number where others began in the same second."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = folder / f"{now:%Y%m%d-%H%M%S}-{number}.json"
        try:
            path.open("x").close()  # of several processes only one makes it
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")
