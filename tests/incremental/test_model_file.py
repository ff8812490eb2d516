"""The model file: whole or not at all, the same size, and whatever a stranger puts into it gives one sentence."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.incremental.costs import LINEAR, growth
from tests.incremental.data import blobs, digits
from tests.support import ask, finite_json, sentence
from ucb.incremental import DamagedModelError, Model, checked_file, learn, learning
from ucb.incremental.checked_file import pack
from ucb.incremental.model import Wave
from ucb.incremental.model_file import to_bytes
from ucb.storage import ceilings


@pytest.fixture(params=["images", "rows", "ucb-ng"])
def model(request, small):
    made = Model("ucb-ng" if request.param == "ucb-ng" else "fixed")
    data = digits if request.param == "images" else blobs
    options = {"epochs": 1} if request.param == "ucb-ng" else {}
    made.learn(data([0, 1], 12), **options)
    made.learn(data([2, 1], 12), "second", **options)
    return made


def inputs(model):
    return digits([0, 1], 4, "test")[0] if len(model.shape) == 3 else blobs([0, 1], 4, 9)[0]


def test_what_is_read_is_what_was_written(model, tmp_path):
    path = tmp_path / "model.ucb"
    model.save(path)
    again = Model.open(path)
    assert again.predict(inputs(model)) == model.predict(inputs(model))
    assert again.show() == model.show()
    assert (again.classes, again.waves, again.shape) == (model.classes, model.waves, model.shape)
    again.save(tmp_path / "again.ucb")
    assert path.read_bytes() == (tmp_path / "again.ucb").read_bytes()


def test_a_model_goes_on_learning_from_its_file_as_if_it_had_never_left(model, tmp_path):
    model.save(tmp_path / "model.ucb")
    again = Model.open(tmp_path / "model.ucb")
    wave = (digits if len(model.shape) == 3 else blobs)([3, 4], 12)
    options = {"epochs": 1} if model.method == "ucb-ng" else {}
    reports = [each.learn(wave, **options) for each in (model, again)]
    assert reports[0].wave == reports[1].wave
    assert [e.change for e in reports[0].effects] == pytest.approx([e.change for e in reports[1].effects])
    assert to_bytes(model) == to_bytes(again)


@pytest.mark.usefixtures("small")
def test_the_file_grows_by_outputs_and_notes_only(tmp_path):
    model, sizes = Model(), []
    for pair in ([0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [0, 1], [0, 1]):
        model.learn(digits(pair, 20, skip=len(sizes) * 20))
        sizes.append(len(to_bytes(model)))
    outputs = 2 * 8 * (model.learner.trunk.features + 1 + 1)
    assert all(b - a <= outputs + 2700 for a, b in pairwise(sizes))
    assert all(b - a <= 2700 for a, b in pairwise(sizes[4:]))


MEMORY = """
import resource
from tests.incremental.data import digits
from ucb.incremental import Model, trunks
trunks.FILTERS = 64
model, peaks = Model(), []
for number in range(9):
    model.learn(digits([number, number + 1], 30))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[3], peaks[-1], model.learner.head.gram.numel() * 8 // 1024)
"""


def test_memory_does_not_grow_with_the_waves():
    """In a process of its own: what tests before have left free counts in no other way."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, cwd=root)
    early, late, sums = (int(word) for word in done.stdout.split())
    assert late - early < 2 * sums, "kilobytes"


def refused(path):
    with pytest.raises(OSError, match=r"\S") as error:
        Model.open(path)
    sentence = str(error.value)
    assert path.name in sentence
    assert "\n" not in sentence
    return sentence


def test_files_that_are_no_models_are_named(tmp_path):
    path = tmp_path / "x.ucb"
    for content, said in [
        (b"", "no model"),
        (b"hello", "no model"),
        (b"\xff" * 100, "no model"),
        ((1 << 40).to_bytes(8, "little") + b"{}" * 100, "no model"),
        (safetensors.torch.save({"a": torch.zeros(2)}), "no model"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "nested too deeply"),
        (b"\x11\0\0\0\0\0\0\0" + b'{"a":{},"a":{}}  ', "twice"),
    ]:
        path.write_bytes(content)
        assert said in refused(path)
    with pytest.raises(FileNotFoundError, match="ucb learn"):
        Model.open(tmp_path / "missing")
    assert "no file" in refused(tmp_path)


def test_a_newer_version_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr(checked_file, "VERSION", 7)
    model.save(tmp_path / "m.ucb")
    monkeypatch.undo()
    assert "newer version" in refused(tmp_path / "m.ucb")


def parts(model):
    content = to_bytes(model)
    length = int.from_bytes(content[:8], "little")
    values = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["model"])
    return values, safetensors.torch.load(content)


ODD = [None, -1, 0, 1e300, "", "x", [], {}, [[]], True, 2**70, -0.5, ["a", "a"], {"kind": "patches", "filters": 10**9}]


@pytest.fixture
def question(model, tmp_path):
    """A file that the model can be asked about."""
    x = inputs(model)
    path = tmp_path / "asked.npz"
    np.savez(path, x=x.numpy())
    return path


def opened_or_refused(path, question):
    """A sentence when the file is opened, or when it is asked; else nothing but numbers. Return whether it opens."""
    try:
        Model.open(path)
    except DamagedModelError:
        refused(path)
        return False
    for words in ("show", path), ("predict", path, question):
        answer = ask(*words, "--format", "json")
        if answer.code == 0:
            finite_json(answer.out)
        else:
            assert "damaged" in sentence(answer, 1)
    return True


def test_signed_files_with_wrong_fields_are_refused_or_harmless(model, tmp_path, question):
    """A stranger can sign what they like: every field is checked for itself."""
    values, tensors = parts(model)
    path = tmp_path / "m.ucb"
    places = [[key] for key in values]
    for optional in ("repeated", "doubt", "grid"):  # numbers that are not in every file: they have their own tests
        values["way"].pop(optional, None)
    values["waves"][0].pop("date")
    places += [["way", key] for key in values["way"]]
    places += [["waves", 0, key] for key in values["waves"][0]]
    harmless = {"seed", "label", "name", "size", "ridge"} | ({"net"} if model.net else set())
    optional = [("columns", None)]
    for place in places:
        *steps, last = place
        changed = json.loads(json.dumps(values))
        at = changed
        for step in steps:
            at = at[step]
        for odd in ODD:
            same = at[last] == odd and type(at[last]) is type(odd)
            at[last] = odd
            path.write_bytes(pack(changed, tensors))
            opens = opened_or_refused(path, question)
            assert same or not opens or last in harmless or (last, odd) in optional, (place, odd)
        del at[last]
        path.write_bytes(pack(changed, tensors))
        assert "missing" in refused(path)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("date", "yesterday"),
        ("date", 3),
        ("choices", [[0, 3]]),
        ("choices", []),
        ("choices", [[0, 1]]),
        ("choices", [[1, 1]]),
        ("choices", [[0, 1], [0, 2]]),
        ("choices", [0, 2]),
        ("choices", "all"),
        ("repeated", -1),
        ("repeated", 61),
        ("largest_effect", ["a", -1.0]),
        ("largest_effect", ["", 1.0]),
        ("largest_effect", 1.0),
        ("fingerprint", "0" * 65),
        ("fingerprint", 1),
        ("other", 1),
    ],
)
def test_signed_notes_of_waves_that_cannot_be_are_refused(tmp_path, name, odd):
    model, path = Model(), tmp_path / "m.ucb"
    model.learn(blobs("ab", 30))
    values, tensors = parts(model)
    values["waves"][0][name] = odd
    path.write_bytes(pack(values, tensors))
    assert "waves[0]" in refused(path)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("odd", [101, -101, 1.5, "14", None])
def test_a_signed_grid_that_cannot_be_is_refused(tmp_path, odd):
    model, path = Model(), tmp_path / "m.ucb"
    model.learn(blobs("ab", 30))
    values, tensors = parts(model)
    values["way"]["grid"] = odd
    path.write_bytes(pack(values, tensors))
    assert "grid" in refused(path)


ONE_SIGN = ("spread", "head.", "calibration.", "precision.", "scale.", "waves.")
"""Tensors that are refused with the other sign."""


def test_signed_files_with_wrong_numbers_are_refused_or_harmless(model, tmp_path, question):
    values, tensors = parts(model)
    path = tmp_path / "m.ucb"
    numbers = random.Random(0)

    def put(**changes):
        path.write_bytes(pack(values, {**tensors, **changes}))

    for name, tensor in tensors.items():
        for other in tensor.reshape(-1)[:-1].clone(), tensor.to(torch.float16), tensor[None].clone(), torch.zeros(0):
            put(**{name: other})
            refused(path)
        put(**{name: -tensor})
        assert not (opened_or_refused(path, question) and any(word in name for word in ONE_SIGN)), name
        path.write_bytes(pack(values, {key: value for key, value in tensors.items() if key != name}))
        refused(path)
        if not tensor.is_floating_point():
            continue
        for odd in (float("nan"), float("inf")):
            wrong = tensor.clone()
            wrong.view(-1)[numbers.randrange(wrong.numel())] = odd
            put(**{name: wrong})
            assert "NaN" in refused(path)
        largest = torch.finfo(tensor.dtype).max
        for odd in 1e30 * torch.randn_like(tensor), torch.full_like(tensor, largest), torch.full_like(tensor, -largest):
            put(**{name: odd})
            assert not (opened_or_refused(path, question) and name.startswith(("head.", "calibration."))), name
    put(more=torch.zeros(1))
    refused(path)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("head.moments", lambda sums: sums * 1e300),
        ("head.moments", lambda sums: sums * 1.01),
        ("head.moments", lambda sums: sums.flip(1)),
        ("head.gram", lambda sums: sums * 1.01),
        ("head.gram", lambda sums: -sums),
        ("head.gram", lambda sums: sums * 0),
        ("head.counts", lambda counts: counts + 1),
        ("trunk.spread", lambda spread: spread * 0),
        ("calibration.moments", lambda sums: sums * torch.tensor([1.0, 10.0, 1.0])),
        ("calibration.moments", lambda sums: sums * 1e300),
    ],
)
def test_statistics_that_no_data_have_are_named_when_the_file_is_opened(tmp_path, name, change):
    model = Model()
    x, labels = blobs("ab", 14)
    model.learn((x[2:], labels[2:]))
    values, tensors = parts(model)
    path = tmp_path / "m.ucb"
    path.write_bytes(pack(values, {**tensors, name: change(tensors[name])}))
    said = refused(path)
    assert "not those of any data" in said or "must be above 0" in said


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
def test_weights_too_large_to_reckon_with_are_named_by_every_form_of_predict(tmp_path, method):
    model = Model(method)
    model.learn(blobs("ab", 12), epochs=1 if method == "ucb-ng" else None)
    values, tensors = parts(model)
    name = (
        "trunk.offsets" if method == "fixed" else next(k for k in tensors if "heads" in k and k.endswith("weight.mu"))
    )
    path, question = tmp_path / "m.ucb", tmp_path / "rows.npz"
    path.write_bytes(pack(values, {**tensors, name: torch.full_like(tensors[name], 3e38)}))
    np.savez(question, x=blobs("ab", 3)[0].numpy())
    for form in ("text", "json", "csv"):
        said = sentence(ask("predict", path, question, "--format", form), 1)
        assert "the model gives no probability for some inputs: its file is damaged" in said
    for twin in (Model.open(path).predict, Model.open(path).forget_check):
        with pytest.raises(RuntimeError, match="no probability"):
            twin(blobs("ab", 3) if twin.__name__ == "forget_check" else blobs("ab", 3)[0])


@pytest.mark.usefixtures("small")
def test_half_characters_in_names_are_named_by_every_command(tmp_path):
    model, path, table = Model(), tmp_path / "m.ucb", tmp_path / "rows.csv"
    table.write_text("label,u,v\n" + "".join(f"{'ab'[n % 2]},{n % 5},{n % 3}\n" for n in range(20)))
    model.learn(table, label="label")
    values, tensors = parts(model)
    text = json.dumps(values)
    for old in ('"a"', '"wave 1"', '"label": "label"', '"u"', '"fixed"'):
        for half in (r"\ud800", r"\udcff", r"x\udfff\n"):
            key = '"label": ' if ":" in old else ""
            changed = json.loads(text.replace(old, f'{key}"{half}"'))
            assert changed != values
            path.write_bytes(pack(changed, tensors))
            commands = [["learn", path, table], ["export", path, tmp_path / "m.onnx"]]
            commands += [["show", path, "--format", form] for form in ("text", "json")]
            commands += [["forget-check", path, table, "--format", form] for form in ("text", "json")]
            commands += [["predict", path, table, "--format", form] for form in ("text", "json", "csv")]
            for words in commands:
                assert "damaged" in sentence(ask(*words), 1)


def test_half_characters_are_not_learnt(model):
    x, _ = (digits if len(model.shape) == 3 else blobs)([0, 1], 2)
    before = to_bytes(model)
    with pytest.raises(ValueError, match=r"the name 'a\\ud800' of a class holds half a character"):
        model.learn((x, ["a\ud800", "b", "a\ud800", "b"]))
    assert to_bytes(model) == before


def mutations(content, count):
    """Bytes changed, cut, doubled, swapped; half of them in the header, where most can go wrong."""
    numbers = random.Random(1)
    header = int.from_bytes(content[:8], "little") + 8
    for _ in range(count):
        changed = bytearray(content)
        for _ in range(numbers.choice([1, 1, 1, 2, 5, 30])):
            place = numbers.randrange(header if numbers.random() < 0.6 else len(changed))
            deed = numbers.randrange(5)
            if deed == 0:
                changed[place] ^= 1 << numbers.randrange(8)
            elif deed == 1:
                changed[place] = numbers.randrange(256)
            elif deed == 2:
                del changed[place : place + numbers.choice([1, 7, 500])]
            elif deed == 3:
                changed[place:place] = changed[place : place + numbers.choice([1, 20, 300])]
            else:
                del changed[max(10, len(changed) - numbers.choice([1, 100, 10_000])) :]
            if len(changed) < header:
                break
        if bytes(changed) != content:
            yield bytes(changed)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", ["fixed", "ucb-ng"])
def test_a_thousand_mutated_files_give_a_sentence_and_change_nothing(tmp_path, method):
    model = Model(method)
    model.learn(blobs([0, 1], 12), epochs=1 if method == "ucb-ng" else None)
    content, path = to_bytes(model), tmp_path / "m.ucb"
    table = tmp_path / "rows.csv"
    table.write_text("a,b,c,d,e,f\n1,2,3,4,5,6\n")
    commands = [["show", path], ["predict", path, table], ["learn", path, table], ["forget-check", path, table]]
    commands += [["show", path, "--format", "json"], ["predict", path, table, "--format", "json"]]
    for number, mutated in enumerate(mutations(content, 1000)):
        path.write_bytes(mutated)
        sentence(ask(*commands[number % len(commands)]), 1)
        assert path.read_bytes() == mutated, number
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.ucb", "rows.csv"]


def test_a_model_that_cannot_be_written_is_a_sentence(model, tmp_path):
    (tmp_path / "old").write_bytes(b"not a model at all")
    with pytest.raises(DamagedModelError, match="no model"):
        Model.open(tmp_path / "old")
    with pytest.raises(OSError, match=r"\S"):
        model.save(tmp_path / "old" / "m.ucb")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("change", [{"label": "x" * 1001}, {"columns": ["a", "b"]}, {"shape": (5000,)}, {"seed": -1}])
def test_what_could_not_be_read_again_is_not_written(change, tmp_path):
    model, path = Model(), tmp_path / "m.ucb"
    model.learn(blobs("ab", 10))
    model.save(path)
    before = path.read_bytes()
    model.__dict__.update(change)
    with pytest.raises(ValueError, match="the model is not written"):
        model.save(path)
    assert path.read_bytes() == before


def test_a_file_of_version_1_is_read_and_becomes_one_of_this_version(tmp_path):
    """Its waves have names where there are numbers now; ucb of that time wrote it, and answered as here."""
    model = Model.open(Path(__file__).with_name("version_1.ucb"))
    assert [(wave.name, wave.examples, wave.held_out) for wave in model.waves] == [
        ("first", {"a": 12, "b": 12}, {"a": (1, 1), "b": (1, 1)}),
        ("second", {"b": 12, "猫": 12}, {"b": (1, 1), "猫": (1, 1)}),
    ]
    rows = model.predict(blobs("ab猫", 1, 9, columns=3)[0])
    assert [row["label"] for row in rows] == ["a", "b", "猫"]
    assert [row["probability"] for row in rows] == pytest.approx([0.9998888, 0.9990388, 0.9999838], abs=1e-5)
    model.save(tmp_path / "m.ucb")
    again = Model.open(tmp_path / "m.ucb")
    assert (again.waves, again.show()) == (model.waves, model.show())
    model.learn(blobs("ab", 12, seed=2, columns=3))


@pytest.mark.usefixtures("small")
def test_signed_figures_of_waves_that_cannot_be_are_refused(tmp_path):
    model, path = Model(), tmp_path / "m.ucb"
    model.learn(blobs("ab", 30))
    values, tensors = parts(model)
    figures = tensors["waves.figures"]
    assert figures[:, :4].tolist() == [[0, 30, 3, 3], [1, 30, 3, 3]]
    assert figures[:, 4].tolist() == list(model.waves[0].prints.values())
    one, all_of_them = slice(0, 1), slice(None)
    for rows, column, odd in [
        (one, 0, 2),
        (one, 0, 1),
        (one, 1, -1),
        (one, 1, 1 << 60),
        (one, 3, 4),
        (all_of_them, 1, 0),
    ]:
        wrong = figures.clone()
        wrong[rows, column] = odd
        path.write_bytes(pack(values, {**tensors, "waves.figures": wrong}))
        assert "waves" in refused(path)


def header_of(content):
    return int.from_bytes(content[:8], "little")


@pytest.mark.usefixtures("small")
def test_thousands_of_classes_with_long_names_in_every_wave_are_read_again(tmp_path, monkeypatch):
    """Long names of any script take 7 bytes a character in the header: once in all, not once for each wave."""
    monkeypatch.setattr(learning, "MOST_HELD_OUT", 20)
    path, names = tmp_path / "m.ucb", [f"{number:04}" + "猫" * 990 for number in range(2600)]
    x = torch.randn(2 * len(names), 4, generator=torch.Generator().manual_seed(0))
    for wave in range(3):
        learn(path, (x + wave, names * 2), f"wave {wave}")
        assert len(Model.open(path).waves) == wave + 1


@pytest.mark.usefixtures("small")
def test_a_thousand_classes_in_every_wave_grow_the_header_by_little(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "MOST_HELD_OUT", 20)
    model = Model()
    x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    model.learn((x, [f"{number:020}" for number in range(1000)] * 2))
    one, sizes = model.waves[0], []
    for waves in (1, 100, 1500):
        names = (f"wave {number} " + 50 * "x" for number in range(waves))
        model.waves = [replace(one, name=name) for name in names]
        model.save(tmp_path / "m.ucb")
        sizes.append((waves, header_of((tmp_path / "m.ucb").read_bytes())))
    assert Model.open(tmp_path / "m.ucb").waves == model.waves
    for (few, short), (many, long) in pairwise(sizes):
        assert (long - short) / (many - few) < 300, "bytes for each wave"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_opening_takes_time_in_proportion_to_classes_and_waves(tmp_path, version):
    def prepared(size):
        model, path = Model(), tmp_path / f"{size}.ucb"
        model.learn(blobs("ab", 4))
        model.classes = [f"class {number}" for number in range(size)]
        model.learner.head.grow(size)
        model.waves = [
            Wave(f"of {name}", {name: 2}, {name: (1, 1)}, choices=((0, number),))
            for number, name in enumerate(model.classes, 1)
        ]
        values, tensors = parts(model)
        if version < 3:
            tensors["waves.figures"] = tensors["waves.figures"][:, :4].clone()
            tensors |= {key: value.sum(0).double() for key, value in tensors.items() if key.startswith("calibration")}
            values["waves"] = [{"name": wave.name, "classes": 1, "fingerprint": ""} for wave in model.waves]
        if version == 1:
            del tensors["waves.figures"]
            values["waves"] = [
                {"name": wave.name, "examples": wave.examples, "held_out": wave.held_out, "fingerprint": ""}
                for wave in model.waves
            ]
        path.write_bytes(pack(values, tensors))
        assert Model.open(path).waves == model.waves
        return lambda: Model.open(path)

    assert growth(prepared, 1500) < LINEAR


@pytest.mark.usefixtures("small")
def test_what_its_reader_would_refuse_never_replaces_a_model(tmp_path, monkeypatch):
    """The limit of the header is the reader's own, and so is the sentence."""
    path = tmp_path / "m.ucb"
    learn(path, blobs("ab", 10))
    before = path.read_bytes()
    monkeypatch.setattr(ceilings, "HEADER", header_of(before) + 500)
    with pytest.raises(ValueError, match=r"the model is not written, since .* bytes of names and notes") as error:
        learn(path, blobs(["c" * 900, "a"], 10))
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before
    assert len(Model.open(path).waves) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["m.ucb"]


@pytest.mark.parametrize("seed", [-1, 10**20, 0.5])
def test_a_seed_that_no_file_can_hold_is_refused_at_once(seed):
    with pytest.raises(ValueError, match="seed is no whole number"):
        Model(seed=seed)


@pytest.mark.usefixtures("small")
def test_sums_of_no_example_at_all_are_refused(tmp_path):
    made = Model()
    made.learn(blobs([0, 1], 12))
    values, tensors = parts(made)
    nothing = {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name.startswith("head.")}
    (tmp_path / "m.ucb").write_bytes(pack(values, {**tensors, **nothing}))
    assert "not those of any data" in refused(tmp_path / "m.ucb")
