"""``ucb init``, ``unlearn``, ``merge`` and ``rename``: changes of a model's file that are no learning."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ucb.cli.command import Debug, Device, explain_interrupt, say_done_at_least
from ucb.cli.model import Form, ModelFile, Verbose, Weights, show_skipped
from ucb.cli.terminal import escape, format_bytes, format_count, print_json, say

if TYPE_CHECKING:
    from ucb.incremental.unlearning import Removal

Embed = Annotated[bool, Option("--embed", help="Put the weights of the trunk into MODEL.")]


def init_command(
    model: ModelFile,
    trunk: Annotated[str, Option(help="The trunk, which no wave changes, such as efficientnet-lite0.")],
    weights: Weights = None,
    features: Annotated[int | None, Option(min=0, metavar="N", help="Random ReLU features.  [default: none]")] = None,
    seed: Annotated[int, Option(min=0, help="The seed of the held-out choice and of all noise.")] = 0,
    embed: Embed = False,
    debug: Debug = False,
) -> None:
    """Make a model that has learnt nothing.

    Copies of it learn at different places, and `ucb merge` makes one model of them.
    """
    from ucb.incremental.editing import init

    init(model, trunk, weights=weights, features=features, seed=seed, embed=embed)
    say(f"the empty model is in {escape(str(model))} ({format_bytes(model.stat().st_size)})")


def unlearn_command(
    model: ModelFile,
    data: Annotated[
        Path | None, Argument(metavar="DATA", help="What is to be unlearnt, in the form in which it was learnt.")
    ] = None,
    class_name: Annotated[str | None, Option("--class", metavar="NAME", help="Unlearn one class alone.")] = None,
    wave: Annotated[str | None, Option(metavar="NAME", help="Unlearn a wave, or examples of it.")] = None,
    last: Annotated[bool, Option("--last", help="Unlearn the last wave, or examples of it.")] = False,
    label: Annotated[str | None, Option(metavar="COLUMN", help="The column of a table with the classes.")] = None,
    weights: Weights = None,
    form: Form = "text",
    device: Device = "cpu",
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Take examples out of a model again, exactly as if they had never been learnt.

    Their DATA must be at hand, or, for a whole wave, its sums (`ucb learn --keep-sums`). With --class and no DATA the
    class is no longer an answer, and what remains of it is said.
    """
    from ucb.cli.watch import ExampleBar
    from ucb.incremental import editing

    with explain_interrupt(lambda _: f"interrupted: {model} is as it was"), ExampleBar("unlearning") as watcher:
        what: dict[str, Any] = {"wave": wave, "class_name": class_name, "last": last, "label": label}
        found = editing.unlearn(model, data, weights=weights, device=device, observer=watcher, **what)
        watcher.stop()
        with say_done_at_least(f"done, and {model} is without them"):
            if form == "json":
                print_json(asdict(found))
            else:
                show_removal(found, model, verbose)


def merge_command(
    models: Annotated[list[Path], Argument(metavar="MODEL", help="The models' files, with the same trunk.")],
    out: Annotated[Path, Option("--out", "-o", metavar="MODEL", help="The file of the merged model.")],
    weights: Weights = None,
    debug: Debug = False,
) -> None:
    """Make one model of several that learnt at different places.

    It is exactly the model that would have learnt everything at one place.
    """
    from ucb.incremental.editing import merge

    with explain_interrupt(lambda _: f"interrupted: {out} is {'there' if out.exists() else 'not there'}"):
        found, remarks = merge(models, out, weights=weights)
        with say_done_at_least(f"done, and {out} holds all of them"):
            for remark in remarks:
                say(f"note: {escape(remark)}")
            waves = format_count(len(found.waves), "wave", "waves")
            classes = format_count(len(found.classes), "class", "classes")
            say(f"merged {len(models)} models: {waves}, {classes}")
            say(f"the model is in {escape(str(out))} ({format_bytes(out.stat().st_size)})")


def rename_command(
    model: ModelFile,
    old: Annotated[str, Argument(metavar="OLD", help="The class.")],
    new: Annotated[str, Argument(metavar="NEW", help="Its new name; a class of that name takes it in.")],
    weights: Weights = None,
    debug: Debug = False,
) -> None:
    """Give a class of a model another name, or join it with the class that has that name."""
    from ucb.incremental.editing import rename

    joined = rename(model, old, new, weights=weights)
    with say_done_at_least(f"done, and {model} has the new name"):
        what = f"is now part of {new!r}" if joined else f"is now called {new!r}"
        say(f"the class {old!r} {what}")


def show_removal(found: Removal, model: Path, verbose: bool) -> None:
    """Say what came of unlearning."""
    show_skipped(found.skipped, verbose)
    number = sum(found.examples.values())
    if number:
        what = format_count(number, "example", "examples")
        classes = format_count(len(found.examples), "class", "classes")
        say(f"unlearnt {what} of {classes}, in {found.seconds:.1f} s")
    for name in found.waves:
        say(f"nothing of the wave {name!r} is left in the sums")
    for name in found.classes:
        say(f"the class {name!r} is no longer an answer")
    if found.remains:
        say("what remains:")
    for sentence in found.remains:
        say(f"  {sentence}")
    say(f"the model is in {escape(str(model))} ({format_bytes(model.stat().st_size)})")
