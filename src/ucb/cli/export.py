"""``ucb export``: a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucb.cli.failing import answering
from ucb.cli.learn import Debug, ModelFile, stopping_well
from ucb.cli.output import size
from ucb.cli.show import say
from ucb.incremental import Model


def export_command(
    context: typer.Context,
    model: ModelFile,
    out: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The ONNX file to write.")],
    debug: Debug = False,
) -> None:
    """Write a model as an ONNX file, once onnxruntime has answered like `ucb predict`."""
    with answering(model, debug or context.obj), stopping_well(model):
        if out.exists() and model.exists() and out.samefile(model):
            raise ValueError(f"{out} is the model itself: name another file")
        done = Model.open(model).export(out)
        say(f"onnxruntime answers like ucb: no probability differs by more than {done.difference:.1e}")
        say(f"the model is in {out} ({size(done.bytes)}); it does not tell when it is unsure")
