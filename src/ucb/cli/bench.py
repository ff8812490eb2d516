"""``ucb bench``: what one training step costs, beside its floors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from ucb.cli.command import Debug
from ucb.cli.terminal import WIDE, make_table, print_table, say

REPEATS = {"cpu": 25, "cuda": 3}


def bench_command(
    device: Annotated[Literal["cpu", "cuda"], Option(help="cpu: one thread; cuda: CUDA graphs.")] = "cpu",
    repeats: Annotated[
        int | None, Option(help="How often each step is timed; medians are shown.  [default: 25, on a GPU 3]")
    ] = None,
    nets: Annotated[
        str | None, Option(help="On a GPU: which nets, separated by commas.  [default: mlp,resnet18]")
    ] = None,
    out: Annotated[Path | None, Option(help="A file to write every figure into, as JSON.")] = None,
    debug: Debug = False,
) -> None:
    """Time one training step of a Bayesian net.

    Beside it stand floors: steps of an ordinary net, which no Bayesian step can go below.
    """
    from ucb.checks import count, find_device
    from ucb.experiments.bench.results import measure_nets

    turns = count("repeats", REPEATS[device] if repeats is None else repeats)
    names = _parse_nets(nets, device)
    result = measure_nets(names, turns, find_device(device))
    show(result, f"ucb bench --device {device} --repeats {turns} --nets {','.join(names)}", out)


def _parse_nets(words: str | None, device: str) -> list[str]:
    """Return the nets that are asked for; a CPU has time for the MLP only."""
    from ucb.checks import nearest
    from ucb.experiments.bench.steps import NETS

    measurable = list(NETS) if device == "cuda" else ["mlp"]
    names = measurable if words is None else [word.strip() for word in words.split(",")]
    for name in names:
        if name not in NETS:
            raise ValueError(f"there is no net {name!r} to time: {nearest(name, NETS)}")
        if name not in measurable:
            raise ValueError(f"{name} is timed on a GPU only: use --device cuda, or --nets mlp")
    return names


def show(result: dict[str, Any], command: str, out: Path | None) -> None:
    """Print all tables of a result, what it ran on, and its bars that are not in a table; write all into ``out``."""
    from ucb.experiments.bench.results import describe_verdict, groups_of, missing, remarks
    from ucb.storage import write_atomically

    for title, (heads, rows) in groups_of(result):
        say(f"{title}\n")
        print_table(make_table(heads, rows, left={"bar"}, wrap=heads[:1]), WIDE)  # in a narrow terminal names wrap
        say("")
    for line in (*remarks(result), *missing(result)):
        say(line)
    for bar in result.get("bars", []):
        say(f"{bar['row']} {bar['value']:.2f}, {describe_verdict(bar)}")
    result["command"] = f"UCB_KERNELS=off {command}" if os.environ.get("UCB_KERNELS") == "off" else command
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, (json.dumps(result, indent=1) + "\n").encode())
