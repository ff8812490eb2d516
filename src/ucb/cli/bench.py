"""``ucb bench``: what one training step costs, beside its floors and other libraries."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ucb.bayes.checks import count, nearest
from ucb.cli.failing import answering
from ucb.cli.show import console, say
from ucb.engine.job import device_named
from ucb.experiments.bench.results import Timing, cpu_result, gpu_result
from ucb.experiments.bench.steps import MLPSizes, ResNetSizes
from ucb.experiments.bench.tables import groups_of, missing, remarks, verdict
from ucb.storage import write_atomically

NETS: dict[str, MLPSizes | ResNetSizes] = {"mlp": MLPSizes(), "resnet18": ResNetSizes()}
REPEATS = {"cpu": 25, "cuda": 3}
WIDE = 200


def bench_command(
    context: typer.Context,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="cpu: one thread; cuda: as CUDA graphs.")] = "cpu",
    repeats: Annotated[
        int | None, typer.Option(help="Turns of each step; medians are shown.  [default: 25, on a GPU 3]")
    ] = None,
    nets: Annotated[
        str | None, typer.Option(help="On a GPU: which nets, with commas between.  [default: mlp,resnet18]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write every figure here as JSON.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Time one training step of ours, its floors and the other libraries that are installed."""
    with answering(Path(), debug or bool(context.obj)):
        turns = count("repeats", REPEATS[device] if repeats is None else repeats)
        names = _names(nets, device)
        where = device_named(device)
        result = _measured(names, turns, where)
        result["command"] = f"ucb bench --device {device} --repeats {turns} --nets {','.join(names)}"
        if os.environ.get("UCB_KERNELS") == "off":
            result["command"] = f"UCB_KERNELS=off {result['command']}"
        show(result)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out, (json.dumps(result, indent=1) + "\n").encode())


def _names(words: str | None, device: str) -> list[str]:
    """Return the nets that are asked for; a CPU has time for the MLP only."""
    measurable = list(NETS) if device == "cuda" else ["mlp"]
    names = measurable if words is None else [word.strip() for word in words.split(",")]
    for name in names:
        if name not in NETS:
            raise ValueError(f"there is no net {name!r} to time: {nearest(name, NETS)}")
        if name not in measurable:
            raise ValueError(f"{name} is timed on a GPU only: use --device cuda, or --nets mlp")
    return names


def _measured(names: list[str], repeats: int, device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        return gpu_result({name: NETS[name] for name in names}, Timing(repeats, device))
    sizes = NETS["mlp"]
    assert isinstance(sizes, MLPSizes)
    return cpu_result(repeats, sizes)


def show(result: dict[str, Any]) -> None:
    """Print all tables of a result, what it ran on, and its bars that are not in a table."""
    for title, (heads, rows) in groups_of(result):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for place, head in enumerate(heads):
            # In a narrow terminal only names may take a second line.
            table.add_column(head, justify="left" if place == 0 or head == "bar" else "right", no_wrap=place > 0)
        for row in rows:
            table.add_row(*row)
        say(f"{title}\n")
        _print(table)
        say("")
    for line in (*remarks(result), *missing(result)):
        say(line)
    for bar in result.get("bars", []):
        say(f"{bar['row']} {bar['value']:.2f}, {verdict(bar)}")


def _print(table: Table) -> None:
    """Print a table; into a file as wide as it is, and without blanks at the ends of its lines."""
    if console.is_terminal:
        console.print(table, highlight=False)
        return
    written = StringIO()
    Console(file=written, width=WIDE).print(table, highlight=False)
    for line in written.getvalue().splitlines():
        say(line.rstrip())
