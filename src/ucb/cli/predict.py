"""``ucb predict``: what a model makes of images or rows, and how sure it is."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import typer

from ucb.cli.failing import answering, warn
from ucb.cli.learn import Debug, ModelFile, Verbose, show_skipped, stopping_well, watched
from ucb.cli.output import print_json
from ucb.cli.show import say
from ucb.cli.terminal import printable, write
from ucb.incremental import Model
from ucb.incremental.predict import predict

FORMULA = re.compile(r"[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


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
        found = predict(Model.open(Path(model), device), inputs, observer=watcher)
        watcher.done()
        for remark in found.remarks:
            warn(f"note: {remark}")
        show_skipped(found.skipped, verbose or form == "json", on_errors=True)
        if not found:
            raise RuntimeError("none of the inputs can be read" if found.skipped else "there are no inputs")
        print_answers(found, form)


def print_answers(rows: list[dict[str, Any]], form: str) -> None:
    """Print what was found as text, JSON or CSV."""
    if form == "json":
        print_json(rows)
    elif form == "csv":
        write(_csv([{**row, "unsure": "yes" if row["unsure"] else "no"} for row in rows]))
    else:
        names, labels = (max(len(row[key]) for row in rows) for key in ("file", "label"))
        for row in rows:
            doubt = "  unsure" if row["unsure"] else ""
            figures = f"{100 * row['probability']:6.2f} %  entropy {row['entropy']:.3f}"
            figures += f"  mutual information {row['mutual_information']:.3f}"
            say(f"{printable(row['file']):<{names}}  {printable(row['label']):<{labels}}  {figures}{doubt}")


def _csv(rows: list[dict[str, Any]]) -> str:
    lines: list[str] = []
    # With its own end of lines, and no other, the writer puts quotes around every kind of break inside a cell.
    writer = csv.DictWriter(SimpleNamespace(write=lines.append), rows[0])
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) if isinstance(value, str) else value for key, value in row.items()})
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def _cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: an apostrophe says that it is none. Numbers stay."""
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text
