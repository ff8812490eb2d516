"""``ucb show`` and ``ucb forget-check``: what a model file holds, and what it still knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ucb.cli.failing import answering
from ucb.cli.learn import Data, Debug, ModelFile, Verbose, show_skipped, stopping_well, watched
from ucb.cli.output import print_json, size
from ucb.cli.show import print_table, say
from ucb.cli.terminal import printable
from ucb.data.readers import Skipped
from ucb.data.readers.reader import counted
from ucb.incremental import Model

Form = Annotated[Literal["text", "json"], typer.Option("--format", help="text or json.")]
CLASSES_SHOWN = 30


def show_command(context: typer.Context, model: ModelFile, form: Form = "text", debug: Debug = False) -> None:
    """Say what a model has learnt, how certain each layer is, and what room is left."""
    with answering(model, debug or context.obj), stopping_well(model):
        facts = {**Model.open(Path(model)).show(), "bytes": model.stat().st_size}
        if form == "json":
            print_json(facts)
        else:
            _show(model, facts)


def _show(model: Path, facts: dict[str, Any]) -> None:
    shape = "x".join(str(side) for side in facts["input"])
    kind = "images" if len(facts["input"]) == 3 else "rows"
    net = f" ({facts['net']})" if facts["net"] else ""
    say(f"{model}: {size(facts['bytes'])}, {facts['method']}{net}, {kind} of {shape}")
    say(f"{counted(len(facts['classes']), 'class', 'classes')}: {_some_classes(facts['classes'])}")
    say("")
    rows = [_wave_row(wave) for wave in facts["waves"]]
    print_table(_table(["wave", "classes", "examples", "right (%)", "of held-out"], rows))
    say("")
    rows = [_layer_row(layer) for layer in facts["layers"]]
    print_table(_table(["layer", "weights", "sigma now / before", ""], rows))
    say("")
    say(f"capacity left: {100 * facts['capacity_left']:.0f} %")
    say(f"unsure above a doubt of {facts['unsure_above']:.2f}")
    say(f"scores are multiplied by {facts['scale']:.3g} before they become probabilities")


def _wave_row(wave: dict[str, Any]) -> list[str]:
    named = ", ".join(wave["classes"][:8]) + (", ..." if len(wave["classes"]) > 8 else "")
    return [wave["name"], named, str(wave["examples"]), _percent(wave["accuracy"]), str(wave["held_out"])]


def _layer_row(layer: dict[str, Any]) -> list[str]:
    sigma = "-" if layer["sigma"] is None else f"{layer['sigma']:.3f}"
    return [layer["layer"], str(layer["weights"]), sigma, layer["note"]]


def _some_classes(classes: dict[str, int]) -> str:
    named = [f"{printable(name)} ({number})" for name, number in list(classes.items())[:CLASSES_SHOWN]]
    return ", ".join(named) + (f" and {len(classes) - CLASSES_SHOWN} more" if len(classes) > CLASSES_SHOWN else "")


def forget_check_command(
    context: typer.Context,
    model: ModelFile,
    data: Data,
    form: Form = "text",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Measure what a model still knows of labelled data, beside what it knew when it learnt them. It learns nothing."""
    with answering(model, debug or context.obj), stopping_well(model), watched("checking") as watcher:
        found = Model.open(Path(model), device).forget_check(data, watcher)
        watcher.done()
        if form == "json":
            print_json(found)
            return
        for remark in found["remarks"]:
            say(f"note: {remark}")
        show_skipped([Skipped(one["file"], one["why"]) for one in found["skipped"]], verbose)
        heads = ["asked", "right now (%)", "when learnt (%)"]
        for what, key in ("class", "classes"), ("wave", "waves"):
            rows = [[e[what], str(e["asked"]), _percent(e["now"]), _percent(e["then"])] for e in found[key]]
            if rows:
                print_table(_table([what, *heads], rows))
                say("")
        for name, figures in found["unknown_classes"].items():
            said = f"{counted(figures['asked'], 'example', 'examples')}, unsure of {figures['unsure']}"
            say(f"the model does not know the class {name!r} ({said})")
        if found["asked"]:
            said = f"{counted(found['asked'], 'example', 'examples')} of classes it knows"
            said += f"; unsure of {found['unsure']} of them"
            say(f"right in {found['accuracy']:.2f} % of {said}")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _table(heads: list[str], rows: list[list[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for place, head in enumerate(heads):
        number = any(word in head for word in ("(%)", "asked", "examples", "weights", "sigma", "held-out"))
        table.add_column(head, justify="right" if number and place else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
