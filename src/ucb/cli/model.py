"""``ucb learn``, ``predict``, ``show``, ``forget-check`` and ``export``: a model file of your own data."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from ucb.cli.command import Debug, Device, explain_interrupt, say_done_at_least
from ucb.cli.terminal import (
    console,
    escape,
    format_bytes,
    format_count,
    make_table,
    print_json,
    print_table,
    say,
    warn,
)

if TYPE_CHECKING:
    from ucb.data.readers import Skipped
    from ucb.incremental import Report

FILES_SHOWN, CLASSES_SHOWN, CLASSES_OF_A_WAVE_SHOWN = 5, 30, 8
"""Longer lists are cut."""
ModelFile = Annotated[Path, Argument(metavar="MODEL", help="The model's file.")]
Data = Annotated[
    Path,
    Argument(metavar="DATA", help="A folder with a folder of images for each class, or a .csv, .npz or .parquet file."),
]
Weights = Annotated[
    Path | None,
    Option(metavar="FILE", help="The weights of a trunk that is a net of another library, if they are not found."),
]
Verbose = Annotated[bool, Option("--verbose", help="Name every file that could not be read.")]
Form = Annotated[Literal["text", "json"], Option("--format", help="text or json.")]


def learn_command(
    model: ModelFile,
    data: Data,
    name: Annotated[str | None, Option(metavar="WAVE", help="What to call this wave.  [default: wave N]")] = None,
    method: Annotated[
        str | None,
        Option(
            help="fixed: an exact Bayesian head on a fixed trunk; ucb-ng: a Bayesian net.  [default: fixed, or the "
            "model's]"
        ),
    ] = None,
    net: Annotated[str | None, Option(help="With ucb-ng: small, mlp, alexnet or resnet18.")] = None,
    trunk: Annotated[
        str | None,
        Option(
            help="With fixed: own, made from the first wave; efficientnet-lite0, -lite1 or -lite2, pretrained on "
            "photographs; timm:NAME or torchvision:NAME with --weights, transformers:FOLDER, or FILE.onnx.  [default: "
            "efficientnet-lite0 for photographs if ucb[pretrained] is installed, else own]"
        ),
    ] = None,
    weights: Weights = None,
    features: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N",
            help="Random ReLU features beside those of a trunk that comes ready, settled by the first wave.  [default: "
            "4000 for a pretrained trunk and a first wave of 1,000 examples, else 0]",
        ),
    ] = None,
    embed: Annotated[bool, Option("--embed", help="Put the weights of a pretrained trunk into MODEL.")] = False,
    label: Annotated[str | None, Option(metavar="COLUMN", help="The column of a table with the classes.")] = None,
    seed: Annotated[
        int | None, Option(min=0, help="The seed of the held-out choice and of all noise.  [default: 0]")
    ] = None,
    device: Device = "cpu",
    epochs: Annotated[int | None, Option(min=1, help="With ucb-ng: the most epochs a wave may take.")] = None,
    again: Annotated[bool, Option("--again", help="Learn data again that the model has learnt before.")] = False,
    keep_sums: Annotated[
        bool, Option("--keep-sums", help="Keep this wave's own sums, so that it can be unlearnt without its data.")
    ] = False,
    form: Form = "text",
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Learn a wave: one delivery of labelled data.

    The first wave makes MODEL; later ones, with old classes or new, are added to it. DATA may be deleted afterwards.
    """
    from ucb.cli.watch import ExampleBar

    how: dict[str, Any] = {"method": method, "net": net, "label": label, "seed": seed, "epochs": epochs}
    how |= {"trunk": trunk, "weights": weights, "features": features}
    with _explain_stopping(model, learns=True), ExampleBar("learning") as watcher:
        from ucb import incremental
        from ucb.data.readers.reader import as_text

        how |= {"again": again, "embed": embed, "keep_sums": keep_sums}
        report = incremental.learn(model, data, name, device=device, observer=watcher, **how)
        watcher.stop()
        with say_done_at_least(f"the wave is learnt, and {model} has it: do not learn it again"):
            if form == "json":
                print_json({**report.facts(), "model": as_text(str(model)), "bytes": model.stat().st_size})
            else:
                show_wave(report, model, verbose, watcher.said)


def predict_command(
    model: ModelFile,
    inputs: Annotated[
        list[str],
        Argument(
            metavar="INPUT",
            help="Images, folders, patterns such as '*.png', or one table; - reads paths of images, or a table, from "
            "standard input.",
        ),
    ],
    form: Annotated[Literal["text", "json", "csv"], Option("--format", help="text, json or csv.")] = "text",
    top: Annotated[int | None, Option(min=1, metavar="K", help="Name the K most probable labels.")] = None,
    all_probabilities: Annotated[bool, Option("--all", help="Give the probability of every class.")] = False,
    threshold: Annotated[
        float | None,
        Option(min=0, metavar="D", help="Call unsure what has a doubt above D.  [default: as `ucb show` says]"),
    ] = None,
    weights: Weights = None,
    device: Device = "cpu",
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Say for each input which class it is, how probable that is, and whether the model is unsure of it."""
    from ucb.cli.watch import ExampleBar

    with _explain_stopping(model), ExampleBar("predicting") as watcher:
        from ucb.cli.answers import print_answers
        from ucb.incremental import Model
        from ucb.incremental.inputs import read_unlabelled
        from ucb.incremental.predict import Question, answer

        question, known = Question(top, all_probabilities, threshold), Model.open(model, device, weights=weights)
        examples = read_unlabelled(known, inputs)
        for remark in examples.remarks:
            warn(f"note: {remark}")
        rows: Iterable[dict[str, Any]] = answer(known, examples, question, watcher)
        if console.is_terminal:  # the bar is there first, and then the rows are
            rows = list(rows)
            watcher.stop()
        number = print_answers(rows, form, examples.names, known.classes)
        watcher.stop()
        show_skipped(examples.skipped, verbose or form == "json", on_errors=True)
        if not number:
            raise RuntimeError("none of the inputs can be read" if examples.skipped else "there are no inputs")


def show_command(model: ModelFile, form: Form = "text", debug: Debug = False) -> None:
    """Show what a model has learnt, how certain each layer is, and how much capacity is left."""
    from ucb.incremental import Model

    with _explain_stopping(model):
        facts = {**Model.open(model, whole=False).show(), "bytes": model.stat().st_size}
        if form == "json":
            print_json(facts)
        else:
            _show_facts(model, facts)


def forget_check_command(
    model: ModelFile,
    data: Data,
    form: Form = "text",
    weights: Weights = None,
    device: Device = "cpu",
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Measure how much a model still knows of labelled data, beside what it knew when it learnt them.

    The model learns nothing from this.
    """
    from ucb.cli.watch import ExampleBar

    with _explain_stopping(model), ExampleBar("checking") as watcher:
        from ucb.incremental import Model

        found = Model.open(model, device, weights=weights).forget_check(data, watcher)
        watcher.stop()
        if form == "json":
            print_json(found)
        else:
            _show_check(found, verbose)


def export_command(
    model: ModelFile,
    out: Annotated[Path, Argument(metavar="OUT.onnx", help="The ONNX file to write.")],
    weights: Weights = None,
    debug: Debug = False,
) -> None:
    """Write a model as an ONNX file, after a check that onnxruntime answers with it as `ucb predict` does."""
    from ucb.incremental import Model

    with _explain_stopping(model):
        if out.exists() and model.exists() and out.samefile(model):
            raise ValueError(f"{out} is the model itself: name another file")
        done = Model.open(model, weights=weights).export(out)
        say(f"onnxruntime answers like ucb: no probability differs by more than {done.difference:.1e}")
        say(f"the model is in {out} ({format_bytes(done.bytes)}); it does not tell when it is unsure")


def _explain_stopping(model: Path, learns: bool = False) -> AbstractContextManager[None]:
    """Answer Ctrl-C with a sentence about the model."""
    before = _stamp(model)

    def explain(_: BaseException) -> str:
        if not learns:
            return f"interrupted: {model} is as it was"
        from ucb.incremental.progress_file import progress_path, remove_progress

        if _stamp(model) != before:
            remove_progress(model)
            return f"interrupted, but the wave is learnt: {model} has it"
        kept = progress_path(model).exists()
        how = "the same command goes on where it stopped" if kept else "nothing of this wave was kept"
        return f"interrupted: {model} {'is as it was' if model.exists() else 'is not there yet'}; {how}"

    return explain_interrupt(explain)


def _stamp(model: Path) -> tuple[int, int] | None:
    """Return what tells a model file from the one that replaces it."""
    return (model.stat().st_ino, model.stat().st_mtime_ns) if model.is_file() else None


def show_wave(report: Report, model: Path, verbose: bool, said: Collection[str] = ()) -> None:
    """Say what came of learning a wave, but for warnings that were ``said`` while it was learnt."""
    wave = report.wave
    for remark in report.remarks:
        say(f"note: {remark}")
    show_skipped(report.skipped, verbose)
    number, classes = sum(wave.examples.values()), len(wave.examples)
    new = f", {len(report.new_classes)} of them new" if report.new_classes else ", none of them new"
    what = f"{format_count(number, 'example', 'examples')} of {format_count(classes, 'class', 'classes')}"
    say(f"learnt {wave.name!r}: {what}{new}, in {report.seconds:.1f} s")
    if wave.accuracy is None:
        say("too few examples to hold any out: the accuracy is not known")
    else:
        asked = sum(asked for asked, _ in wave.held_out.values())
        what = format_count(asked, "held-out example", "held-out examples")
        say(f"right in {wave.accuracy:.2f} % of {what} of this wave, with all classes so far to choose from")
    if report.effects:
        say(f"effect on each earlier wave ({report.effects[0].meaning}):")
    for effect in report.effects:
        say(f"  {effect.wave!r}: {effect.change:.3f}, {effect.words}")
    for warning in (f"warning: {each}" for each in report.warnings):
        if warning not in said:
            warn(escape(warning))
    say(f"the model is in {model} ({format_bytes(model.stat().st_size)}); the data are no longer needed")


def show_skipped(skipped: list[Skipped], verbose: bool, on_errors: bool = False) -> None:
    """Name what could not be read."""
    if not skipped:
        return
    tell, one = (warn, "input") if on_errors else (say, "example")
    what = format_count(len(skipped), f"{one} could not be read and is", f"{one}s could not be read and are")
    tell(f"{what} left out:")
    shown = skipped if verbose else skipped[:FILES_SHOWN]
    for each in shown:
        tell(f"  {escape(each.name)}: {escape(each.why)}")
    if len(skipped) > len(shown):
        tell(f"  and {len(skipped) - len(shown)} more (--verbose names all)")


def _show_facts(model: Path, facts: dict[str, Any]) -> None:
    shape = "x".join(str(side) for side in facts["input"])
    kind = "images" if len(facts["input"]) == 3 else "rows"
    net = f" ({facts['net']})" if facts["net"] else ""
    say(f"{model}: {format_bytes(facts['bytes'])}, {facts['method']}{net}, {kind} of {shape}")
    if not facts["classes"]:
        note = next(layer["note"] for layer in facts["layers"] if layer["layer"] == "trunk")
        say(f"it has learnt nothing yet; its trunk: {note}")
        return
    classes = [f"{escape(name)} ({number})" for name, number in facts["classes"].items()]
    more = f" and {len(classes) - CLASSES_SHOWN} more" if len(classes) > CLASSES_SHOWN else ""
    say(f"{format_count(len(classes), 'class', 'classes')}: {', '.join(classes[:CLASSES_SHOWN])}{more}\n")
    heads = ["wave", "learnt", "classes", "examples", "right (%)", "of held-out", "largest effect"]
    rows = []
    for wave in facts["waves"]:
        more = ", ..." if len(wave["classes"]) > CLASSES_OF_A_WAVE_SHOWN else ""
        named = ", ".join(wave["classes"][:CLASSES_OF_A_WAVE_SHOWN]) + more
        figures = [str(wave["examples"]), _format_figure(wave["accuracy"]), str(wave["held_out"])]
        effect = wave["largest_effect"]
        felt = "" if effect is None else f"{effect['change']:.3f} on {effect['wave']}"
        rows.append([wave["name"], (wave["date"] or "-")[:10], named, *figures, felt])
    print_table(make_table(heads, rows, left={"classes", "largest effect"}, wrap=heads))
    say("")
    heads = ["layer", "weights", "sigma now / before", ""]
    layers = facts["layers"]
    rows = [[e["layer"], str(e["weights"]), _format_figure(e["sigma"], 3), e["note"]] for e in layers]
    print_table(make_table(heads, rows, left={""}, wrap=heads))
    say(f"\ncapacity left: {100 * facts['capacity_left']:.0f} %")
    say(f"unsure above a doubt of {facts['unsure_above']:.2f} (how unlike held-out examples the input and answer are)")
    say(f"scores are multiplied by {facts['scale']:.3g} before they become probabilities")


def _show_check(found: dict[str, Any], verbose: bool) -> None:
    from ucb.data.readers import Skipped

    for remark in found["remarks"]:
        say(f"note: {remark}")
    show_skipped([Skipped(one["file"], one["why"]) for one in found["skipped"]], verbose)
    for what, key in ("class", "classes"), ("wave", "waves"):
        figures = ("now", "now_as_then", "then")
        rows = [[e[what], str(e["asked"]), *(_format_figure(e[name]) for name in figures)] for e in found[key]]
        if rows:
            heads = [what, "asked", "right now (%)", "now, classes of then (%)", "when learnt (%)"]
            print_table(make_table(heads, rows, wrap=heads))
            say("")
    for name, figures in found["unknown_classes"].items():
        asked = format_count(figures["asked"], "example", "examples")
        say(f"the model does not know the class {name!r} ({asked}, unsure of {figures['unsure']})")
    if found["asked"]:
        asked = format_count(found["asked"], "example", "examples")
        unsure = f"unsure of {found['unsure']} of them"
        say(f"right in {found['accuracy']:.2f} % of {asked} of classes it knows; {unsure}")


def _format_figure(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
