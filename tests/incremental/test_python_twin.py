"""From Python: arrays of numpy are as good as tensors, and what is wrong with data is said in a sentence."""

import numpy as np
import pytest
import torch

from tests.incremental.data import blobs, digits, write_pngs
from ucb.incremental import Model

PIXELS = np.zeros((4, 1, 28, 28), np.uint8)
EXPECTED = "examples must be uint8 images"


@pytest.fixture
def model(small):
    learnt = Model()
    learnt.learn(blobs("ab", 20))
    return learnt


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ">f8", np.longdouble])
def test_arrays_are_as_good_as_tensors(model, dtype):
    x, labels = blobs("ab", 20)
    x = x.half().float()
    same, other = Model(), Model()
    array = x.numpy().astype(dtype)
    array.setflags(write=False)
    same.learn((x, labels))
    other.learn((array, np.array(labels)))
    assert other.classes == ["a", "b"]
    assert torch.equal(same.learner.head.gram, other.learner.head.gram)
    assert other.predict(array) == same.predict(x)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("labels", [[0, 1] * 10, np.array([0, 1] * 10), torch.tensor([0, 1] * 10)])
def test_labels_that_are_numbers_are_named_by_them(labels):
    model = Model()
    model.learn((digits([0, 1], 10)[0].numpy(), labels))
    assert model.classes == ["0", "1"]


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.zeros(6), EXPECTED),
        (np.zeros((2, 3, 6)), EXPECTED),
        (np.zeros((2, 1, 6, 6)), EXPECTED),
        (np.zeros((2, 6), np.uint8), EXPECTED),
        (np.zeros((2, 6), complex), EXPECTED),
        (np.zeros((2, 0)), EXPECTED),
        (np.array([["a"] * 6]), EXPECTED),
        (np.array([[None] * 6]), EXPECTED),
        (torch.zeros(2, 6, dtype=torch.complex64), EXPECTED),
        (np.transpose(PIXELS, (0, 2, 3, 1)), EXPECTED),
        (
            np.array([[0.0] * 6, [np.nan] * 6]),
            "1 of 2 rows hold NaN, infinity or a number too large; the first is row 2",
        ),
        (np.full((3, 6), np.inf), "3 of 3 rows"),
        (np.full((3, 6), 1e300), "3 of 3 rows"),
        (np.zeros((2, 7)), "shape"),
        (PIXELS, "shape"),
    ],
)
def test_inputs_that_cannot_be_are_refused_in_a_sentence(model, x, said):
    before = model.learner.head.gram.clone()
    with pytest.raises(ValueError, match=said):
        model.predict(x)
    with pytest.raises(ValueError, match=said):
        model.learn((x, ["a"] * len(x)))
    assert torch.equal(model.learner.head.gram, before)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.zeros((2, 6)), "a pair of inputs and labels"),
        ((np.zeros((2, 6)),), "a pair of inputs and labels"),
        (None, "a pair of inputs and labels"),
        ((np.zeros((2, 6)), ["a"]), "as many labels, not 1"),
        ((np.zeros((2, 6)), "ab"), "labels must be a list"),
        ((np.zeros((2, 6)), None), "no labels"),
        ((np.zeros((2, 6)), np.zeros((2, 2))), "labels must be a list"),
        (([[0.0] * 6], ["a"]), "examples must be .* not list"),
    ],
)
def test_data_that_cannot_be_learnt_is_refused_in_a_sentence(model, data, said):
    with pytest.raises(ValueError, match=said):
        model.learn(data)


@pytest.mark.parametrize("x", [None, 3, [[0.0] * 6], [np.zeros(6)]])
def test_what_are_no_inputs_is_refused_in_a_sentence(model, x):
    with pytest.raises(ValueError, match=r"examples must be|inputs must be"):
        model.predict(x)


@pytest.mark.usefixtures("small")
def test_what_could_not_be_read_is_told(tmp_path):
    folder = write_pngs(tmp_path / "data", *digits([0, 1], 12))
    (folder / "0" / "broken.png").write_bytes(b"half an image")
    model = Model()
    report = model.learn(folder)
    assert ["broken" in one.name for one in report.skipped] == [True]
    found = model.predict([folder])
    assert len(found) == 24
    assert found == list(found)
    (skipped,) = found.skipped
    assert "broken.png" in skipped.name
    assert skipped.why
    assert model.predict(digits([0], 2)[0]).skipped == []
