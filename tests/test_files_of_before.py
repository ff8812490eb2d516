"""Files that an earlier version wrote are read as it read them: cut runs, models, learners, progress of `ucb learn`.

`files_of_before/answers.json` has what that version answered. On the same kind of machine with the same PyTorch every
bit must agree, but for what is said of rows; elsewhere sums are rounded otherwise, and the figures must be close.
"""

import io
import json
import math
import os
import platform
import runpy
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ucb import Learner, Schedule, Training, from_arrays
from ucb.nets import mlp

FILES = Path(__file__).parent / "files_of_before"
MNIST = ["mnist-2split", "--hidden", "2", "--set", "batch_size=1000", "--set", "eval_samples=1"]
CUTS = {"ucb": ["--method", "ucb", "--epochs", "2", "--samples", "1"], "ewc": ["--method", "ewc", "--epochs", "2"]}
MODELS = {"fixed-images": ["images"], "fixed-table": ["table.csv", "--label", "kind"], "ucb-ng": ["small.csv"]}
MOMENT = 1_700_000_000 * 10**9
"""When the table of a `learn` that was cut was written: the time is part of what tells it from others."""
LEFT_OUT = ("seconds", "task_seconds", "versions", "device", "peak_memory_bytes", "beside", "steps_together", "config")


def machine():
    """What last bits depend on."""
    return [platform.machine(), torch.__version__, torch.backends.cpu.get_cpu_capability(), np.__version__]


def ask(*words):
    """The answer of ``python -m ucb`` in this process: its exit status, and what it wrote."""
    out, err, argv, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["ucb", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            runpy.run_module("ucb", run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


def asked_well(*words):
    code, out, err = ask(*words)
    assert code == 0, err
    return out


def write_data(folder):
    """Waves that a formula gives, the same everywhere: images, a table, a small one, and a long one."""
    for wave, kinds in ("images", (1, 2)), ("images-2", (3, 4)), ("images-new", (1, 2, 3)):
        for kind in kinds:
            place = folder / wave / f"kind {kind}"
            place.mkdir(parents=True)
            for i in range(4 if wave == "images-new" else 14):
                y, x = np.mgrid[:9, :9]
                shift = 7 * i + (3 if wave == "images-new" else 0)
                pixels = (kind * (37 * x + 11 * y * kind) + 13 * shift + (x * y * i) % 17) % 256
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.png")
    table(folder / "table.csv", "abc", 20, 3)
    table(folder / "table-2.csv", "cd", 20, 3, first=100)
    table(folder / "table-new.csv", "abcd", 3, 3, first=500, labels=False)
    table(folder / "small.csv", "ab", 30, 2)
    table(folder / "small-2.csv", "cd", 30, 2, first=100)
    table(folder / "small-new.csv", "abcd", 3, 2, first=500, labels=False)
    table(folder / "long.csv", "abcd", 160, 3, first=1000)
    os.utime(folder / "long.csv", ns=(MOMENT, MOMENT))


def table(path, kinds, number, columns, first=0, labels=True):
    names = "xyzuvw"[:columns]
    lines = [",".join(names) + (",kind" if labels else "")]
    for i in range(first, first + number):
        for kind in kinds:
            centre = ord(kind) - ord("a")
            row = [f"{math.cos(2 * centre + c) * 2 + math.sin(i * (3 + c) + centre):.4f}" for c in range(columns)]
            lines.append(",".join(row) + (f",{kind}" if labels else ""))
    path.write_text("\n".join(lines) + "\n")


def new_inputs(name):
    return {"fixed-images": "images-new", "fixed-table": "table-new.csv", "ucb-ng": "small-new.csv"}[name]


def second_wave(name):
    options = ["--epochs", "2"] if name == "ucb-ng" else []
    return [{"fixed-images": "images-2", "fixed-table": "table-2.csv", "ucb-ng": "small-2.csv"}[name], *options]


def predictions(model, name):
    """What a model says of inputs that it has not seen."""
    return json.loads(asked_well("predict", model, new_inputs(name), "--format", "json"))


def measured(result):
    """A result without times, versions, and names of settings, which have become others."""
    return {key: value for key, value in result.items() if key not in LEFT_OUT}


def learner(path):
    """A learner of points from its file, and its stream."""
    made = {}
    for task in range(2):
        x = torch.tensor([[math.sin(i * (c + 2) + task) for c in range(4)] for i in range(120)])
        y = (x[:, task] > x[:, task + 1]).long()
        made[f"task {task}"] = (x[:80], y[:80], x[80:], y[80:])
    stream = from_arrays("points", made)
    torch.manual_seed(0)
    net = mlp((4,), stream.head_sizes, [5])
    training = Training(Schedule(epochs=2), batch_size=16)
    return Learner.load(path, net, stream, "ucb", training=training, lr=0.3, samples=2), stream


def learner_answers(made, tasks):
    x = torch.linspace(-1, 1, 20).reshape(5, 4)
    return [made.predict(x, task=task, samples=3).probabilities.tolist() for task in range(tasks)]


@pytest.fixture(scope="module")
def before():
    return json.loads((FILES / "answers.json").read_text())


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the data in it, where the commands are given."""
    write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


ROUNDED = {"fixed-table": 1e-6, "ucb-ng": 1e-6}
"""Products of rows are in double precision by now, and were not then: the last bits of these answers are others."""


def same(found, known, before, within, where="", here=0.0):
    """Whether two values agree: on a machine like that of the files to the last bit or ``here``, else ``within``."""
    if isinstance(known, dict):
        assert found.keys() >= known.keys(), where
        for key in known:
            same(found[key], known[key], before, within, f"{where}/{key}", here)
    elif isinstance(known, list):
        assert len(found) == len(known), where
        for i, (a, b) in enumerate(zip(found, known, strict=True)):
            same(a, b, before, within, f"{where}/{i}", here)
    elif isinstance(known, float) and (here or machine() != before["machine"]):
        close = here if machine() == before["machine"] else within
        assert found == pytest.approx(known, rel=close, abs=close), where
    else:
        assert found == known, where


@pytest.mark.parametrize("method", CUTS)
def test_a_run_that_was_cut_goes_on(place, before, method):
    shutil.copytree(FILES / f"cut-{method}", place / "run")
    asked_well("resume", "run")
    result = json.loads((place / "run" / "result.json").read_text())
    known = before["cuts"][method]
    if machine() == before["machine"]:
        same(measured(result), known, before, 0)
    else:  # a step that rounds otherwise may turn single answers
        assert result["acc"] == pytest.approx(known["acc"], abs=3)
        for key in ("benchmark", "method", "tasks", "epochs", "steps", "weights", "stored_values"):
            assert result[key] == known[key]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_as_before_and_learns_on(place, before, name):
    shutil.copy(FILES / f"{name}.ucb", "model.ucb")
    known, here = before["models"][name], ROUNDED.get(name, 0.0)
    same(predictions("model.ucb", name), known["predict"], before, 1e-4, here=here)
    shown = json.loads(asked_well("show", "model.ucb", "--format", "json"))
    same(shown, known["show"], before, 1e-4)
    asked_well("learn", "model.ucb", *second_wave(name))
    after = 0.05 if name == "ucb-ng" else 1e-3
    same(predictions("model.ucb", name), known["predict after"], before, after, here=here)


def test_a_learn_that_was_cut_goes_on(place, before):
    for ending in "", ".learning":
        shutil.copy(FILES / f"cut-learn.ucb{ending}", f"model.ucb{ending}")
    _, _, err = ask("learn", "model.ucb", "long.csv")
    assert "starts anew" not in err
    assert not Path("model.ucb.learning").exists()
    same(predictions("model.ucb", "fixed-table"), before["cut learn"], before, 1e-3, here=ROUNDED["fixed-table"])


def test_a_learner_goes_on_from_its_file(before):
    made, stream = learner(FILES / "learner.safetensors")
    same(learner_answers(made, 1), before["learner"]["answers"], before, 1e-4)
    made.learn(stream.tasks[1])
    same(learner_answers(made, 2), before["learner"]["answers after"], before, 0.05)
