"""``ucb predict``: what a model makes of images or rows, and how sure it is."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ucb.cli.failing import answering
from ucb.cli.learn import Debug, ModelFile, Verbose, complain, show_skipped, stopping_well, watched
from ucb.cli.output import print_json
from ucb.cli.show import printable, say
from ucb.waves import Model
from ucb.waves.predicting import predict


def predict_command(
    context: typer.Context,
    model: ModelFile,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...", help="Images, folders, patterns, one table, or - for paths on standard input."
        ),
    ],
    form: Annotated[Literal["text", "json", "csv"], typer.Option("--format", help="text, json or csv.")] = "text",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Say what each input is, how probable that is, and whether the model is unsure of it."""
    with answering(model, debug or context.obj), stopping_well(model), watched("predicting") as watcher:
        found = predict(Model.open(Path(model), device), inputs, watcher=watcher)
        watcher.done()
        for remark in found.remarks:
            complain(f"note: {remark}")
        show_skipped(found.skipped, verbose or form == "json", on_errors=True)
        if not found:
            raise RuntimeError("none of the inputs can be read" if found.skipped else "there are no inputs")
        _print(found, form)


def _print(rows: list[dict[str, Any]], form: str) -> None:
    if form == "json":
        print_json(rows)
    elif form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "unsure": "yes" if row["unsure"] else "no"} for row in rows)
        sys.stdout.write(text.getvalue())
    else:
        names, labels = (max(len(row[key]) for row in rows) for key in ("file", "label"))
        for row in rows:
            doubt = "  unsure" if row["unsure"] else ""
            figures = f"{100 * row['probability']:6.2f} %  entropy {row['entropy']:.3f}"
            figures += f"  mutual information {row['mutual_information']:.3f}"
            say(f"{printable(row['file']):<{names}}  {printable(row['label']):<{labels}}  {figures}{doubt}")
