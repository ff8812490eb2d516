"""The list of all commands. Each is a function in one of the modules imported here."""

from __future__ import annotations

from collections.abc import Callable

import typer

from ucb.cli import bench, data, edit, model, reproduce, run, tune
from ucb.cli.command import Command, Commands, read_options

COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "learn": (model.learn_command, "Learn a wave, one delivery of your own data, into a model file."),
    "predict": (model.predict_command, "Classify inputs, and say how sure the model is of each."),
    "show": (model.show_command, "Show what a model file has learnt, and how certain it is."),
    "forget-check": (model.forget_check_command, "Measure how much a model still knows of old data."),
    "unlearn": (edit.unlearn_command, "Take examples, a wave or a class out of a model again."),
    "merge": (edit.merge_command, "Make one model of several that learnt at different places."),
    "init": (edit.init_command, "Make an empty model, with which several places can begin."),
    "rename": (edit.rename_command, "Give a class of a model another name, or join it with another."),
    "export": (model.export_command, "Write a model as an ONNX file for programs without this package."),
    "run": (run.run_command, "Learn a benchmark's tasks one after another."),
    "resume": (run.resume_command, "Go on with a run that was interrupted."),
    "list": (run.list_command, "List the methods or the benchmarks."),
    "report": (run.report_command, "Write one HTML page about runs, with charts."),
    "tune": (tune.tune_command, "Choose a method's settings on held-out data."),
    "reproduce": (reproduce.reproduce_command, "Run what is still missing in a table of the paper."),
    "table": (reproduce.table_command, "Print a table of the paper beside our own results."),
    "bench": (bench.bench_command, "Time one training step, beside its floors."),
}

app = typer.Typer(
    cls=Commands,
    help="Continual learning with Bayesian neural networks: learn, predict and show work on your own data; run, "
    "report, tune and reproduce on benchmarks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name, (_function, _about) in COMMANDS.items():
    app.command(_name, cls=Command, short_help=_about)(_function)
app.callback()(read_options)
app.add_typer(data.data_app, name="data")
