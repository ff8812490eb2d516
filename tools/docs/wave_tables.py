"""What `waves.py` and `tables.py` measured, as the tables of docs/learn-from-your-data.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

RESULTS = Path(__file__).parents[2] / "results" / "waves"
NAMES = {
    "mnist": "MNIST digits",
    "cifar10": "CIFAR10 photos",
    "cifar100": "CIFAR100 photos",
    "lfw100": "faces (LFW)",
    "notmnist": "letters",
    "fashion_mnist": "clothes",
    "svhn": "house numbers",
    "traffic_signs": "traffic signs",
}

Runs = list[dict[str, Any]]
"""The same measurement with several seeds."""


def measured() -> dict[tuple[str, str], Runs]:
    """Return what was measured of each data set and method, MNIST first."""
    found: dict[tuple[str, str], Runs] = {}
    for path in sorted(RESULTS.glob("*-seed*.json")):
        one = json.loads(path.read_text())
        found.setdefault((one["data"], one["method"]), []).append(one)
    return dict(sorted(found.items(), key=lambda item: (item[0][0] != "mnist", item[0])))


def waves() -> str:
    """Return a row for each data set and method."""
    lines = [
        "| data, method | right | right where it is sure | ECE | called unsure | others called unsure (AUROC) |"
        " file after wave 1 and 5 | learnt and judged in a second by a core |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *(_row(data, method, runs) for (data, method), runs in measured().items())])


def first_waves() -> str:
    """Return the accuracy after each wave, beside that after a first wave of ten images."""
    lines = [
        "| data, first wave | wave 1 | 2 | 3 | 4 | 5 | first two classes | later eight |",
        "| --- |" + " --- |" * 7,
    ]
    for (data, method), runs in measured().items():
        if method == "fixed":
            ordinary = [[row["so_far"] for row in run["waves"]] for run in runs]
            ten = [run["first_wave_of_ten_images"] for run in runs]
            lines.append(_so_far(f"{NAMES[data]}, {2 * runs[0]['images_a_class']:,} images", ordinary))
            lines.append(_so_far(f"{NAMES[data]}, 10 images", ten))
    return "\n".join(lines)


def photographs() -> str:
    """Return a row for each data set that was learnt with a pretrained trunk."""
    lines = [
        "| data | waves, images a class | right | right where it is sure | ECE | called unsure |"
        " others called unsure (AUROC) | file |",
        "| --- |" + " --- |" * 7,
    ]
    found: dict[tuple[str, int], Runs] = {}
    for path in sorted(RESULTS.glob("efficientnet-lite0*/*-seed*.json")):
        one = json.loads(path.read_text())
        found.setdefault((one["data"], -one["images_a_class"]), []).append(one)
    for (data, images), runs in sorted(found.items()):
        cells = _cells(data, runs)
        number = f"{-images:,}" if images else "all"
        title = [NAMES[data], f"{len(runs[0]['waves'])}, {number}"]
        size = f"{runs[0]['bytes_after_each_wave'][-1] / 1e6:.0f} MB"
        lines.append(f"| {' | '.join([*title, *cells, size])} |")
    return "\n".join(lines)


PAPER = {"cifar-alternating": "71.2", "eight-datasets": "76.8"}
"""ACC of UCB with one head and the task hidden, as the paper's table of heads has it."""


def pretrained_tasks(results: Path) -> str:
    """Return a row for each stream of images that was learnt with a pretrained trunk; nothing if there is none."""
    found: dict[str, Runs] = {}
    for path in sorted(results.glob("waves/pretrained-tasks/*-seed*.json")):
        one = json.loads(path.read_text())
        found.setdefault(one["stream"], []).append(one)
    lines = ["| stream | seeds | ACC | BWT | paper ACC (no pretraining) |", "| --- |" + " --- |" * 4]
    for name, runs in found.items():
        acc, bwt = ([run[key] for run in runs] for key in ("acc", "bwt"))
        spread = [f" +- {stdev(values):.2f}" if len(runs) > 1 else "" for values in (acc, bwt)]
        figures = [f"{mean(acc):.2f}{spread[0]}", f"{mean(bwt):+.2f}{spread[1]}"]
        lines.append(f"| `{name}`, pretrained | {len(runs)} | {' | '.join(figures)} | {PAPER[name]} |")
    return "\n".join(lines) if found else ""


def _row(data: str, method: str, runs: Runs) -> str:
    sizes = runs[0]["bytes_after_each_wave"]
    learnt, judged = (
        mean(_within(run, f"{what}_images_a_cpu_second") for run in runs) for what in ("learnt", "judged")
    )
    cells = [
        f"{NAMES[data]}, `{method}`",
        *_cells(data, runs),
        f"{sizes[0] / 1e6:.2f} and {sizes[-1] / 1e6:.2f} MB",
        f"{learnt:.0f} and {judged:.0f} images",
    ]
    return f"| {' | '.join(cells)} |"


def _cells(data: str, runs: Runs) -> list[str]:
    """Return how good the answers are."""

    def over_seeds(*keys: str) -> float:
        return mean(_within(run, *keys) for run in runs)

    others = ", ".join(
        f"{NAMES[name]} {100 * over_seeds('unlike', name, 'called_unsure'):.1f} %"
        f" ({over_seeds('unlike', name, 'auroc'):.3f})"
        for name in runs[0]["unlike"]
    )
    spread = f" +- {stdev(run['accuracy'] for run in runs):.2f}" if len(runs) > 1 else ""
    return [
        f"{over_seeds('accuracy'):.2f} %{spread}",
        f"{over_seeds('accuracy_where_sure'):.2f} %",
        f"{over_seeds('ece'):.4f}",
        f"{100 * over_seeds('called_unsure'):.1f} %",
        others or "-",
    ]


def _within(run: dict[str, Any], *keys: str) -> float:
    value: Any = run
    for key in keys:
        value = value[key]
    return float(value)


def _so_far(title: str, runs: list[Runs]) -> str:
    """Return a row of accuracies after each wave, and in the end of the first wave's classes and of the later ones."""
    figures = [mean(run[wave]["accuracy"] for run in runs) for wave in range(5)]
    first, later = (mean(mean(run[-1]["of_waves"][part]) for run in runs) for part in (slice(1), slice(1, None)))
    return f"| {title} | {' | '.join(f'{figure:.2f} %' for figure in [*figures, first, later])} |"


def mixed_tables() -> str:
    """Return a row for each table that `tables.py` learnt, beside logistic regression."""
    lines = [
        "| table | rows, columns | logistic regression | `ucb learn`, one wave | difference |"
        " three waves | difference |",
        "| --- |" + " --- |" * 6,
    ]
    for name, found in json.loads((RESULTS / "tables.json").read_text())["sets"].items():
        cells = [name.replace("_", " "), f"{found['rows']:,}, {found['columns']}"]
        cells.append(f"{100 * mean(found['logistic_regression']):.2f} %")
        for way in ("ucb", "ucb_three_waves"):
            beside = found[f"{way}_beside_it"]
            cells.append(f"{100 * mean(found[way]):.2f} %")
            cells.append(f"{100 * beside['difference']:+.2f} +- {100 * beside['standard_error']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "waves": waves,
    "first-waves": first_waves,
    "mixed-tables": mixed_tables,
    "photographs": photographs,
}
