"""The tables of docs/methods.md: what each method is, and what was measured of it, from classes and result files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tools.docs.markdown import table
from ucb.engine.config import recipe_for
from ucb.methods import Method, known_methods

RESULTS = Path(__file__).parents[2] / "results"
BENCHMARK = "mnist-5split"


def about() -> str:
    """Return what each method says of itself."""
    rows = [
        [f"`{name}`", kind.summary, kind.paper or "-", scenarios(kind), kind.memory]
        for name, kind in known_methods().items()
    ]
    return table(["method", "what it does", "from", "scenarios", "keeps beside the net"], rows)


def scenarios(kind: type[Method]) -> str:
    """Return the scenarios that a method serves."""
    task = "task known" if kind.needs_task else "all"
    return task if kind.needs_boundaries else f"{task}, no boundaries"


def measured() -> str:
    """Return ACC, BWT and costs of every method on 5-Split MNIST."""
    rows = []
    for name in known_methods():
        result = _read(RESULTS / BENCHMARK / f"{name}-seed0.json")
        if result is not None:
            rows.append(
                [
                    f"`{name}`",
                    f"{result['acc']:.2f}",
                    "-" if result["bwt"] is None else f"{result['bwt']:+z.2f}",
                    f"{result['learning_acc']:.2f}" if result["learning_acc"] is not None else "-",
                    f"{result['seconds']:.0f} ({result['device'].split(', ')[-1]})",
                    f"{result['weights']:,}",
                    f"{result['stored_values']:,}",
                ]
            )
    return table(["method", "ACC", "BWT", "right after learning", "seconds", "weights", "stored values"], rows)


def settings() -> str:
    """Return the chosen value of every tuned setting, with what was tried."""
    rows = []
    for name, kind in known_methods().items():
        recipe = recipe_for(BENCHMARK, name)
        grid = recipe.grid or kind.settings_type.grid()
        values = {key: recipe.settings.get(key, _default(kind, key)) for key in grid}
        tried = {key: f" of {_list(grid[key])}" if recipe.grid or not recipe.settings else "" for key in grid}
        chosen = "; ".join(f"{key} **{values[key]}**{tried[key]}" for key in grid)
        rows.append([f"`{name}`", chosen if recipe.settings else f"not tuned: {chosen}", recipe.found])
    return table(["method", "chosen of tried", "how"], rows)


def two_tasks() -> str:
    """Return what methods reach when two tasks decide their settings, where all five did for the main table."""
    rows = []
    for path in sorted((RESULTS / "mnist-5split-two-tasks").glob("*.json")):
        result = json.loads(path.read_text())
        chosen = ", ".join(f"{key} {value}" for key, value in result["config"]["settings"].items())
        rows.append([f"`{result['method']}`", chosen, f"{result['acc']:.2f}", f"{result['bwt']:+z.2f}"])
    return table(["method", "chosen on two tasks", "ACC", "BWT"], rows)


def steps() -> str:
    """Return what a step costs beside ord-ft's."""
    result = _read(RESULTS / "bench" / "methods.json")
    if result is None:
        return "not measured"
    rows = [[f"`{n}`", f"{1e3 * m['seconds']:.1f}", f"{m['ratio']:.2f}"] for n, m in result["methods"].items()]
    kernels = result["versions"]["kernels"]
    return f"{result['device']}, kernels {kernels}.\n\n" + table(["method", "ms a step", "times ord-ft"], rows)


def blurred() -> str:
    """Return what became of the methods that need no boundaries."""
    rows = []
    for path in sorted((RESULTS / "mnist-permuted-blurred").glob("*.json")):
        result = json.loads(path.read_text())
        rows.append(
            [f"`{result['method']}`", result["config"]["blur"], f"{result['acc']:.2f}", f"{result['bwt']:+z.2f}"]
        )
    return table(["method", "blur", "ACC", "BWT"], rows)


def on_images(benchmark: str, papers: Mapping[str, str]) -> str:
    """Return what the methods reach on a benchmark of images, beside what the paper prints for them."""
    rows = []
    for path in sorted((RESULTS / benchmark).glob("*.json")):
        result = json.loads(path.read_text())
        others = [f"{value:.2f}" for value in result["acc_of"].values()]
        figures = [f"{result[key]:.2f}" for key in ("acc", "bwt", "learning_acc")]
        epochs = result["config"]["training"]["epochs"]
        rows.append([f"`{result['method']}`", *figures, *others, epochs, *_paper(papers, result["method"])])
    names = [f"ACC {name}" for name in result["acc_of"]]
    heads = ["method", "ACC", "BWT", "right after learning", *names, "epochs a task"]
    return table([*heads, *(["the paper: ACC / BWT"] if papers else [])], rows)


def _paper(papers: Mapping[str, str], method: str) -> list[str]:
    return [papers.get(method, "-")] if papers else []


ALTERNATING = {"hat": "78.32 / -0.04", "ewc": "72.46 / -1.53", "bbb-ft": "68.89 / -7.43"}
"""The table of the paper for alternating CIFAR, as far as its rows are measured here."""


def norms() -> str:
    """Return what ResNet18 reaches with each normalisation."""
    rows = []
    for path in sorted((RESULTS / "normalisation").glob("*.json")):
        result = json.loads(path.read_text())
        figures = [f"{result[key]:.2f}" for key in ("acc", "bwt", "learning_acc")]
        options = result["config"]["net_options"]
        rows.append([f"`{result['method']}`", options.get("width", 64), f"`{options['norm']}`", *figures])
    return table(["method", "width", "norm", "ACC", "BWT", "right after learning"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "cifar-alternating": partial(on_images, "cifar-alternating", ALTERNATING),
    "eight-datasets": partial(on_images, "eight-datasets", {}),
    "norms": norms,
    "about": about,
    "measured": measured,
    "settings": settings,
    "steps": steps,
    "blurred": blurred,
    "two-tasks": two_tasks,
}


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def _default(kind: type[Method], key: str) -> Any:
    return getattr(kind.settings_type(), key)


def _list(values: Iterable[object]) -> str:
    return "/".join(str(value) for value in values)
