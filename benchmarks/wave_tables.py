"""What `waves.py` measured, as the table of docs/learn-from-your-data.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results" / "waves"
NAMES = {
    "mnist": "MNIST digits",
    "cifar10": "CIFAR10 photos",
    "notmnist": "letters",
    "fashion_mnist": "clothes",
    "svhn": "house numbers",
    "traffic_signs": "traffic signs",
}


def waves() -> str:
    """Return a row for each data set and method that was measured, with the first seed."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*-seed0.json"))]
    found.sort(key=lambda one: (one["data"] != "mnist", one["data"], one["method"]))
    lines = [
        "| data, method | right | right where it is sure | ECE | called unsure | others called unsure (AUROC) |"
        " file after wave 1 and 5 | learnt and judged a second |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *map(_row, found)])


def _row(one: dict[str, Any]) -> str:
    others = ", ".join(
        f"{NAMES.get(name, name)} {100 * of['called_unsure']:.1f} % ({of['auroc']:.3f})"
        for name, of in one["unlike"].items()
    )
    sizes = one["bytes_after_each_wave"]
    learnt, judged = (f"{one[f'{what}_images_a_second']:.0f}" for what in ("learnt", "judged"))
    cells = [
        f"{NAMES.get(one['data'], one['data'])}, `{one['method']}`",
        f"{one['accuracy']:.2f} %" + (f" of {one['tested']}" if "tested" in one else ""),
        f"{one['accuracy_where_sure']:.2f} %",
        f"{one['ece']:.4f}",
        f"{100 * one['called_unsure']:.1f} %",
        others or "-",
        f"{sizes[0] / 1e6:.2f} and {sizes[-1] / 1e6:.2f} MB",
        f"{learnt} and {judged} images ({_threads(one['threads'])})",
    ]
    return f"| {' | '.join(cells)} |"


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


TABLES: dict[str, Callable[[], str]] = {"waves": waves}
