"""The commands as an engineer meets them: folders come, are learnt and deleted; questions are answered."""

import csv
import hashlib
import io
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.incremental.data import blobs, digits, letters, write_pngs
from tests.support import make_output_plain, refused, succeed, ucb
from ucb.cli.answers import print_answers
from ucb.incremental import Model
from ucb.incremental.predict import predict_batch
from ucb.incremental.waves import list_choices
from ucb.metrics import auroc

FIELDS = ["file", "label", "probability", "entropy", "mutual_information", "unsure", "doubt"]


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    make_output_plain(monkeypatch)


def engineer(folder, per_class, asked):
    """Learn five waves of two digits, each folder deleted once it is learnt; return the share of right answers."""
    model = folder / "digits.ucb"
    sizes = []
    for wave in range(5):
        data = write_pngs(folder / "data", *digits([2 * wave, 2 * wave + 1], per_class))
        said = succeed("learn", model, data)
        assert f"learnt 'wave {wave + 1}': {2 * per_class:,} examples of 2 classes, 2 of them new" in said
        assert said.count("effect on each earlier wave") == (wave > 0)
        assert said.count("\n  'wave ") == wave
        shutil.rmtree(data)
        sizes.append(model.stat().st_size)
    outputs = 2 * 8 * (Model.open(model).learner.head.gram.shape[0] + 1)
    assert all(b - a <= outputs + 2700 for a, b in pairwise(sizes))
    assert sorted(each.name for each in folder.iterdir()) == ["digits.ucb"]
    before = hashlib.sha256(model.read_bytes()).digest()
    unseen = write_pngs(folder / "unseen", *digits(range(10), asked, "test"))
    rows = json.loads(succeed("predict", model, unseen, "--format", "json"))
    assert len(rows) == 10 * asked
    assert list(rows[0]) == FIELDS
    assert hashlib.sha256(model.read_bytes()).digest() == before
    return [row["label"] == Path(row["file"]).parent.name for row in rows], rows


@pytest.mark.usefixtures("medium")
def test_an_engineer_with_five_waves_of_digits(tmp_path):
    right, digit_rows = engineer(tmp_path, 300, 40)
    assert sum(right) / len(right) >= 0.965
    strange = write_pngs(tmp_path / "letters", letters(100), ["?"] * 100)
    letter_rows = json.loads(succeed("predict", tmp_path / "digits.ucb", strange, "--format", "json"))
    unsure = [sum(row["unsure"] for row in rows) / len(rows) for rows in (digit_rows, letter_rows)]
    assert unsure[0] < 0.15
    assert unsure[1] > 4 * unsure[0]


def unlike_digits():
    """Letters that are drawn here; real letters and clothes where UCB_DATA names a folder with them."""
    found = {"drawn letters": letters(1000)}
    for name in ("notmnist", "fashion_mnist"):
        path = Path(os.environ.get("UCB_DATA", "nowhere")) / f"{name}.npz"
        if path.exists():
            found[name] = torch.from_numpy(np.load(path)["x_test"][:2000])[:, None]
    return found


@pytest.mark.slow
def test_an_engineer_with_two_thousand_images_a_digit(tmp_path):
    right, rows = engineer(tmp_path, 2000, 850)
    assert sum(right) / len(right) >= 0.98
    assert sum(row["unsure"] for row in rows) / len(rows) < 0.1
    model = Model.open(tmp_path / "digits.ucb")
    known = predict_batch(model, digits(range(10), 200, "test")[0])
    for name, x in unlike_digits().items():
        answers = predict_batch(model, x)
        assert auroc(known.unsureness, answers.unsureness) >= 0.9, name
        assert answers.unsure.double().mean() > 5 * known.unsure.double().mean(), name


@pytest.fixture
def known(tmp_path, small):
    """A model of two waves of digits, and unseen ones as files."""
    model = tmp_path / "m.ucb"
    for wave, pair in enumerate(([0, 1], [2, 3])):
        data = write_pngs(tmp_path / f"data{wave}", *digits(pair, 30))
        succeed("learn", model, data, "--name", f"week {wave + 1}")
    unseen = write_pngs(tmp_path / "unseen", *digits([0, 1, 2, 3], 3, "test"))
    return model, unseen


def test_answers_in_three_forms(known):
    model, unseen = known
    rows = json.loads(succeed("predict", model, unseen, "--format", "json"))
    assert all(list(row) == FIELDS for row in rows)
    assert all(isinstance(row["unsure"], bool) and 0 < row["probability"] <= 1 for row in rows)
    assert 0 < sum(row["unsure"] for row in rows) < len(rows)
    threshold = Model.open(model).calibration.threshold
    assert [row["doubt"] > threshold for row in rows] == [row["unsure"] for row in rows]
    table = list(csv.DictReader(io.StringIO(succeed("predict", model, unseen, "--format", "csv"))))
    assert [row["label"] for row in table] == [row["label"] for row in rows]
    assert list(table[0]) == FIELDS
    assert [json.loads(row["unsure"]) for row in table] == [row["unsure"] for row in rows]
    head, *text = succeed("predict", model, unseen).splitlines()
    assert head.split() == ["file", "label", "probability", "entropy", "mutual", "information", "doubt", "unsure"]
    assert len(text) == len(rows)
    assert all(row["file"] in line and f" {row['label']} " in line for row, line in zip(rows, text, strict=True))
    assert [json.loads(line.split()[-1]) for line in text] == [row["unsure"] for row in rows]
    for name in ("label", "unsure"):
        assert all(line[head.index(name) - 1] == " " != line[head.index(name)] for line in text)
    assert all(line[head.index("doubt") + 4] == f"{row['doubt']:.2f}"[-1] for line, row in zip(text, rows, strict=True))


def test_the_most_probable_labels_and_all_probabilities(known):
    model, unseen = known
    plain = json.loads(succeed("predict", model, unseen, "--format", "json"))
    words = ("predict", model, unseen, "--top", "3", "--all")
    rows = json.loads(succeed(*words, "--format", "json"))
    assert [{name: row[name] for name in FIELDS} for row in rows] == plain
    x = torch.from_numpy(np.stack([np.asarray(Image.open(row["file"])) for row in rows]))[:, None]
    truth = predict_batch(Model.open(model), x).prediction.probabilities
    for row, own in zip(rows, truth, strict=True):
        assert list(row) == [*FIELDS, "top", "probabilities"]
        assert list(row["probabilities"]) == ["0", "1", "2", "3"]
        np.testing.assert_allclose(list(row["probabilities"].values()), own, atol=1e-6)
        by_size = sorted(row["probabilities"].items(), key=lambda each: -each[1])
        assert [(each["label"], each["probability"]) for each in row["top"]] == by_size[:3]
        assert row["top"][0] == {"label": row["label"], "probability": row["probability"]}
    assert len(json.loads(succeed(*words[:3], "--top", "9", "--format", "json"))[0]["top"]) == 4
    table = list(csv.DictReader(io.StringIO(succeed(*words, "--format", "csv"))))
    ranks = [f"{name}_{place}" for place in (1, 2, 3) for name in ("label", "probability")]
    assert list(table[0]) == [*FIELDS, *ranks, *(f"probability:{digit}" for digit in range(4))]
    for line, row in zip(table, rows, strict=True):
        assert [line[f"label_{place}"] for place in (1, 2, 3)] == [each["label"] for each in row["top"]]
        assert [float(line[f"probability:{digit}"]) for digit in range(4)] == list(row["probabilities"].values())
    head, first, *_ = succeed(*words).splitlines()
    named = "label 2 probability 2 label 3 probability 3"
    assert head.split("unsure")[1].split() == [*named.split(), *"0123"]
    assert first.count("%") == 7
    with pytest.raises(ValueError, match="top must be at least 1"):
        Model.open(model).predict(x, top=0)


def test_a_threshold_of_ones_own(known):
    model, unseen = known
    rows = json.loads(succeed("predict", model, unseen, "--format", "json"))
    doubts = sorted(row["doubt"] for row in rows)
    for limit in (0, doubts[4], doubts[-1]):
        told = json.loads(succeed("predict", model, unseen, "--format", "json", "--threshold", limit))
        assert [row["unsure"] for row in told] == [row["doubt"] > limit for row in rows]
    x = digits([0, 1], 3, "test")[0]
    opened = Model.open(model)
    assert [row["unsure"] for row in opened.predict(x, threshold=1e9)] == [False] * 6
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="threshold must be 0 or above"):
            opened.predict(x, threshold=wrong)
    assert ucb("predict", model, unseen, "--threshold", "-1").exit_code == 2


def test_answers_are_printed_while_others_are_still_to_come(known, capsys):
    def rows():
        for number in range(3):
            yield {**dict.fromkeys(FIELDS, 0.0), "file": f"{number}", "label": "a\u2028b", "unsure": False}
            seen.append(capsys.readouterr().out)

    for form in ("csv", "json", "text"):
        seen = []
        assert print_answers(rows(), form, "012", "a") == 3
        assert all(seen)
        if form == "json":
            found = json.loads("".join(seen) + capsys.readouterr().out)
            assert [row["file"] for row in found] == ["0", "1", "2"]
            assert found[0]["label"] == "a\u2028b"
        capsys.readouterr()
    assert print_answers(iter(()), "json") == 0
    assert capsys.readouterr().out == ""


def test_image_bytes_on_standard_input_get_a_hint(known, tmp_path):
    model, unseen = known
    one = next((unseen / "1").iterdir())
    Image.open(one).save(tmp_path / "one.jpg")
    for image in (one, tmp_path / "one.jpg"):
        answer = ucb("predict", model, "-", stdin=image.read_bytes())
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert answer.stderr.count("\n") == 1
        assert "must hold the paths of images, one a line" in answer.stderr


def test_a_wave_in_json(known, tmp_path):
    model, _ = known
    data = write_pngs(tmp_path / "more", *digits([3, 4], 20, skip=50))
    (data / "4" / "broken.png").write_bytes(b"no image")
    answer = ucb("learn", model, data, "--name", "week 3", "--format", "json")
    facts = json.loads(answer.stdout)
    assert (answer.exit_code, answer.stderr) == (0, "")
    shown = json.loads(succeed("show", model, "--format", "json"))
    wave = shown["waves"][-1]
    assert (facts["wave"], facts["examples"]) == ("week 3", {"3": 20, "4": 20})
    assert (facts["accuracy"], facts["new_classes"]) == (wave["accuracy"], ["4"])
    assert sum(each["asked"] for each in facts["held_out"].values()) == wave["held_out"] == 4
    assert 100 * sum(each["right"] for each in facts["held_out"].values()) / 4 == wave["accuracy"]
    assert [effect["wave"] for effect in facts["effects"]] == ["week 1", "week 2"]
    assert all(effect["change"] >= 0 and effect["words"] and effect["meaning"] for effect in facts["effects"])
    assert [each["file"] for each in facts["skipped"]] == ["4/broken.png"]
    assert (facts["model"], facts["bytes"]) == (str(model), model.stat().st_size)
    assert (facts["remarks"], facts["warnings"]) == ([], [])
    assert facts["seconds"] > 0
    answer = ucb("learn", tmp_path / "new.ucb", write_pngs(tmp_path / "alone", *digits([5], 9)), "--format", "json")
    assert "alone" in json.loads(answer.stdout)["warnings"][0]
    answer = ucb("learn", model, data, "--format", "json")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "learnt before, as 'week 3'" in answer.stderr


def test_patterns_and_standard_input(known):
    model, unseen = known
    ones = sorted(str(path) for path in (unseen / "1").iterdir())
    by_pattern = json.loads(succeed("predict", model, f"{unseen}/1/*.png", "--format", "json"))
    by_input = json.loads(succeed("predict", model, "-", "--format", "json", stdin="\n".join(ones) + "\n"))
    assert sorted(row["file"] for row in by_pattern) == sorted(row["file"] for row in by_input) == ones


def test_paths_on_standard_input_that_are_not_there_are_listed_and_left_out(known):
    model, unseen = known
    one = next((unseen / "1").iterdir())
    lines = f"{unseen}/gone.png\n{one}\n{unseen}/*.gif\n"
    answer = ucb("predict", model, "-", "--format", "json", stdin=lines)
    assert answer.exit_code == 0
    assert [row["file"] for row in json.loads(answer.stdout)] == [str(one)]
    assert answer.stderr.splitlines() == [
        "2 inputs could not be read and are left out:",
        f"  {unseen}/gone.png: there is no such file",
        f"  {unseen}/*.gif: nothing fits the pattern",
    ]
    answer = ucb("predict", model, "-", stdin=f"{unseen}/gone.png\n{unseen}/1\xff.png\n".encode("latin-1"))
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert f"  {unseen}/1\\xff.png: there is no such file" in answer.stderr
    assert answer.stderr.splitlines()[-1] == "error: none of the inputs can be read"
    answer = ucb("predict", model, "-", stdin="\n")
    assert (answer.exit_code, answer.stderr) == (2, "error: the input holds no images\n")
    assert f"there is no file or folder {unseen}/gone.png" in refused("predict", model, one, unseen / "gone.png")


def test_what_cannot_be_read_is_listed_and_left_out(known, tmp_path):
    model, unseen = known
    data = write_pngs(tmp_path / "dirty", *digits([4], 12))
    for number in range(8):
        (data / "4" / f"broken{number}.png").write_bytes(b"no image")
    said = succeed("learn", model, data)
    assert "8 examples could not be read and are left out:" in said
    assert said.count("  4/broken") == 5
    assert "and 3 more" in said
    assert "learnt 'wave 3': 12 examples of 1 class, 1 of them new" in said
    (unseen / "broken.png").write_bytes(b"no image")
    answer = ucb("predict", model, unseen, "--format", "json")
    assert "1 input could not be read and is left out:" in answer.stderr
    assert "broken.png" in answer.stderr
    assert len(json.loads(answer.stdout)) == 12
    assert "none of the inputs can be read" in ucb("predict", model, unseen / "broken.png").stderr


def test_folders_that_lie_too_deep_are_warned_about_once_and_in_time(known, tmp_path):
    model, _ = known
    for year in ("2023", "2024"):
        write_pngs(tmp_path / "years" / year, *digits([0, 1], 6, skip=40 + int(year)))
    answer = ucb("learn", model, tmp_path / "years")
    assert answer.exit_code == 0
    said = f"warning: the classes are the folders '2023', '2024' of {tmp_path}/years, not those inside them, '0', '1'"
    assert answer.stderr.splitlines()[0].startswith(said)
    assert answer.stderr.count(said) == 1
    heard = []
    observer = SimpleNamespace(noted=heard.append, moved=lambda *_: heard.append("moved"))
    report = Model().learn(tmp_path / "years", observer=observer)
    assert heard[0] == f"warning: {report.warnings[0]}"
    assert said.removeprefix("warning: ") in report.warnings[0]
    facts = json.loads(succeed("forget-check", model, tmp_path / "years", "--format", "json"))
    assert facts["remarks"] == report.warnings[:1]


def test_show_says_what_was_learnt(known):
    model, _ = known
    text = succeed("show", model)
    for word in ("week 1", "week 2", "4 classes: 0 (30), 1 (30)", "trunk", "head", "capacity left", "unsure above"):
        assert word in text
    facts = json.loads(succeed("show", model, "--format", "json"))
    assert facts["bytes"] == model.stat().st_size
    assert [wave["examples"] for wave in facts["waves"]] == [60, 60]
    assert facts["classes"] == {"0": 30, "1": 30, "2": 30, "3": 30}
    assert 0 < facts["capacity_left"] < 1


def test_forget_check_measures_and_changes_nothing(known, tmp_path):
    model, unseen = known
    write_pngs(unseen, *digits([9], 2, "test"))
    before = model.read_bytes()
    facts = json.loads(succeed("forget-check", model, unseen, "--format", "json"))
    assert facts["asked"] == 12
    assert facts["unknown_classes"].keys() == {"9"}
    assert facts["unknown_classes"]["9"]["asked"] == 2
    assert facts["unsure"] <= facts["asked"]
    assert {entry["wave"]: entry["asked"] for entry in facts["waves"]} == {"week 1": 6, "week 2": 6}
    rows = json.loads(succeed("predict", model, unseen, "--format", "json"))
    right = [row["label"] == Path(row["file"]).parent.name for row in rows if "/9/" not in row["file"]]
    assert facts["accuracy"] == pytest.approx(100 * sum(right) / 12)
    then = {entry["class"]: entry["then"] for entry in facts["classes"]}
    shown = Model.open(model).waves
    assert then["0"] == 100 * shown[0].held_out["0"][1] / shown[0].held_out["0"][0]
    text = succeed("forget-check", model, unseen)
    assert "now, classes of then (%)" in " ".join(text.split())
    assert "does not know the class '9' (2 examples, unsure of" in text
    assert model.read_bytes() == before
    assert sorted(each.name for each in model.parent.glob("m.ucb*")) == ["m.ucb"]


@pytest.mark.usefixtures("small")
def test_forget_check_compares_like_with_like():
    model, (x, labels) = Model(), blobs("abcd", 60, columns=2)
    x, of = (
        x + 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)),
        torch.tensor(list(map(ord, labels))),
    )
    seen = torch.arange(len(x)) % 3 > 0
    for names in ("ab", "bc", "da"):
        own = seen & torch.isin(of, torch.tensor(list(map(ord, names))))
        model.learn((x[own], [labels[place] for place in own.nonzero().flatten().tolist()]))
    assert [list_choices(wave.choices) for wave in model.waves] == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]
    asked, named = x[~seen], [label for label, known in zip(labels, seen.tolist(), strict=True) if not known]
    rows = model.predict(asked, all_probabilities=True)

    def right(classes, choices):
        mine = [(row["probabilities"], name) for row, name in zip(rows, named, strict=True) if name in classes]
        return 100 * sum(max(choices, key=p.__getitem__) == name for p, name in mine) / len(mine)

    found = model.forget_check((asked, named))
    for wave, own, choices in zip(found["waves"], ("ab", "bc", "da"), ("ab", "abc", "abcd"), strict=True):
        assert wave["now"] == pytest.approx(right(own, "abcd"))
        assert wave["now_as_then"] == pytest.approx(right(own, choices))
    first = found["waves"][0]
    assert first["now_as_then"] > first["now"] + 5  # with two classes to choose from it is easier
    classes = {each["class"]: each["now_as_then"] for each in found["classes"]}
    assert classes["c"] == pytest.approx(right("c", "abc"))
    weights = [model.waves[place].held_out["a"][0] for place in (0, 2)]
    mean = np.average([right("a", "ab"), right("a", "abcd")], weights=weights)
    assert classes["a"] == pytest.approx(mean)


@pytest.mark.usefixtures("small")
def test_tables_are_learnt_by_the_named_column(tmp_path):
    model = tmp_path / "rows.ucb"
    for number, names in enumerate(("ab", "cd")):
        x, labels = blobs(names, 30)
        lines = ["kind,p,q,r,s,t,u"]
        lines += [
            f"{label}," + ",".join(f"{v:.5f}" for v in row.tolist()) for row, label in zip(x, labels, strict=True)
        ]
        (tmp_path / f"{number}.csv").write_text("\n".join(lines) + "\n")
    succeed("learn", model, tmp_path / "0.csv", "--label", "kind")
    succeed("learn", model, tmp_path / "1.csv")  # the model remembers which column it was
    x, labels = blobs("abcd", 10, seed=5)
    (tmp_path / "ask.csv").write_text(
        "u,t,s,r,q,p\n" + "\n".join(",".join(f"{v:.5f}" for v in row.flip(0).tolist()) for row in x) + "\n"
    )
    rows = json.loads(succeed("predict", model, tmp_path / "ask.csv", "--format", "json"))
    assert [row["label"] for row in rows] == labels
    assert "rows of 6" in succeed("show", model)
    piped = ucb("predict", model, "-", "--format", "json", stdin=(tmp_path / "ask.csv").read_text())
    assert json.loads(piped.stdout) == rows
    assert "standard input lacks 5 columns: 'q'" in ucb("predict", model, "-", stdin="p\n1\n").stderr
    assert "error: standard input is empty" in ucb("predict", model, "-", stdin="").stderr
    assert "standard input is not UTF-8 text" in ucb("predict", model, "-", stdin=b"\x89PNG\r\n\x1a\n\0\xff").stderr
    assert "- alone" in refused("predict", model, "-", "-")
    far = tmp_path / "far.csv"
    far.write_text("p,q,r,s,t,u\n90,-90,90,-90,90,-90\n")
    assert json.loads(succeed("predict", model, far, "--format", "json"))[0]["unsure"] is True


def test_wrong_usage_is_one_sentence(known, tmp_path):
    model, unseen = known
    assert "there is no model" in refused("show", tmp_path / "none.ucb")
    assert "there is no model" in refused("predict", tmp_path / "none.ucb", unseen)
    assert "leave --method out" in refused("learn", model, unseen, "--method", "ucb-ng")
    assert "method must be one of" in refused("learn", tmp_path / "new", unseen, "--method", "magic")
    assert "already" in refused("learn", model, unseen, "--name", "week 1")
    assert "epochs go with" in refused("learn", model, unseen, "--epochs", "3")
    assert "a folder" in refused("learn", tmp_path, unseen)
    assert "no folder" in refused("learn", tmp_path / "a" / "b", unseen)
    assert "device" in refused("learn", model, unseen, "--device", "tpu")
    refused("learn", model, tmp_path / "nowhere")
    refused("predict", model, tmp_path / "nowhere.png")
    Image.new("L", (28, 28)).save(tmp_path / "alone.png")
    refused("learn", model, tmp_path / "alone.png")
    assert not (tmp_path / "new").exists()


def test_help_names_what_there_is():
    for command in ("learn", "predict", "show", "forget-check"):
        assert "MODEL" in succeed(command, "--help")
        assert command in succeed("--help")


@pytest.mark.usefixtures("small")
def test_names_that_would_command_a_terminal_are_shown_as_text(tmp_path):
    rows = "\n".join(f"{number % 7},{number % 5},{'[/b]' if number % 2 else chr(27) + '[2J'}" for number in range(20))
    (tmp_path / "r.csv").write_text(f"u,v,label\n{rows}\n")
    model = tmp_path / "m.ucb"
    succeed("learn", model, tmp_path / "r.csv", "--name", "[/x]")
    outputs = [
        succeed("show", model),
        succeed("forget-check", model, tmp_path / "r.csv"),
        succeed("predict", model, tmp_path / "r.csv"),
    ]
    assert "[/x]" in outputs[0]
    for output in outputs:
        assert "[/b]" in output
        assert chr(27) not in output
        assert "\\x1b[2J" in output


@pytest.mark.usefixtures("small")
def test_a_table_with_a_very_long_first_line_is_read(tmp_path):
    names = ";".join(f"column number {number}" for number in range(9000))
    lines = [f"{names};label", *(";".join(["1", "2"] * 4500) + f";{'ab'[n % 2]}" for n in range(4))]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    assert "4 examples of 2 classes" in succeed("learn", tmp_path / "m.ucb", tmp_path / "wide.csv")


@pytest.mark.usefixtures("small")
def test_a_class_of_which_one_image_can_be_read_is_warned_about(tmp_path):
    data = write_pngs(tmp_path / "data", *digits([0, 1], 8))
    for number, image in enumerate(sorted((data / "1").iterdir())):
        if number:
            image.write_bytes(b"broken")
    assert "note: class '1' has only one example that can be read" in succeed("learn", tmp_path / "m.ucb", data)


@pytest.mark.usefixtures("small")
def test_who_names_a_net_wants_it_to_learn(tmp_path):
    rows = "\n".join(f"{number % 7},{number % 2},{'ab'[number % 2]}" for number in range(40))
    (tmp_path / "r.csv").write_text(f"u,v,label\n{rows}\n")
    for _ in range(2):  # the second wave may name it again
        succeed("learn", tmp_path / "m.ucb", tmp_path / "r.csv", "--net", "mlp", "--epochs", "1", "--again")
    facts = json.loads(succeed("show", tmp_path / "m.ucb", "--format", "json"))
    assert (facts["method"], facts["net"]) == ("ucb-ng", "mlp")
