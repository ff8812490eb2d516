"""Arrays in .npz files."""

import pickle

import numpy as np
import pytest
import torch

from ucb.data.readers import fingerprint, open_labelled, open_unlabelled

from .files import drawn, everything, whys

RANDOM = np.random.default_rng(0)
GREY = RANDOM.integers(0, 256, (6, 10, 12), dtype=np.uint8)
COLOUR = RANDOM.integers(0, 256, (6, 10, 12, 3), dtype=np.uint8)
Y = np.array([0, 1, 2, 0, 1, 2])


def saved(tmp_path, **arrays):
    path = tmp_path / "wave.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ("x", "y"),
        ("X", "Y"),
        ("X", "y"),
        ("images", "labels"),
        ("data", "target"),
        ("x_train", "y_train"),
    ],
)
def test_names_of_arrays(tmp_path, x, y):
    path = saved(tmp_path, **{x: GREY, y: Y, "other": np.zeros(3)})
    examples = open_labelled(path)
    assert examples.shape == (1, 10, 12)
    assert examples.labels == ["0", "1", "2", "0", "1", "2"]
    assert examples.names == [f"row {number}" for number in range(1, 7)]
    assert examples.columns is None
    positions, found = everything(examples, 4)
    assert positions == list(range(6))
    assert found.dtype == torch.uint8
    np.testing.assert_array_equal(found[:, 0].numpy(), GREY)
    assert open_unlabelled([str(path)], (1, 10, 12)).labels is None


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (COLOUR, COLOUR.transpose(0, 3, 1, 2)),
        (COLOUR.transpose(0, 3, 1, 2), COLOUR.transpose(0, 3, 1, 2)),
        (GREY[..., None], GREY[:, None]),
        (GREY[:, None], GREY[:, None]),
        (np.stack([GREY] * 3, axis=3), GREY[:, None]),
        ((GREY / 255).astype(np.float32), GREY[:, None]),
        ((GREY / 255).astype(np.float64), GREY[:, None]),
        (GREY.astype(np.float32), GREY[:, None]),
        (GREY.astype(np.int64), GREY[:, None]),
        (np.minimum(GREY.astype(np.int64) * 257 + 100, 65_535).astype(np.uint16), GREY[:, None]),
        (GREY > 127, (GREY[:, None] > 127) * 255),
    ],
)
def test_kinds_of_images(tmp_path, x, expected):
    examples = open_labelled(saved(tmp_path, x=x, y=Y))
    assert examples.shape == expected.shape[1:]
    np.testing.assert_array_equal(everything(examples)[1].numpy(), expected)


def test_transparent_images(tmp_path):
    x = np.concatenate([COLOUR, np.zeros_like(COLOUR[..., :1])], axis=3)
    x[:, 0, 0, 3] = 255
    found = everything(open_labelled(saved(tmp_path, x=x, y=Y), (3, 10, 12)))[1].numpy()
    np.testing.assert_array_equal(found[:, :, 0, 0], COLOUR[:, 0, 0])
    assert found[:, :, 1:].min() == 255


def test_a_given_shape_is_kept(tmp_path):
    path = saved(tmp_path, x=GREY, y=Y)
    found = everything(open_labelled(path, (3, 10, 12)))[1].numpy()
    np.testing.assert_array_equal(found, np.stack([GREY] * 3, axis=1))
    expected = np.asarray(drawn(size=(12, 10)).resize((9, 8), 2))
    np.savez(path, x=np.asarray(drawn(size=(12, 10)))[None], y=Y[:1])
    np.testing.assert_array_equal(everything(open_labelled(path, (1, 8, 9)))[1].numpy()[0, 0], expected)


def test_large_images_are_made_smaller(tmp_path):
    examples = open_labelled(saved(tmp_path, x=np.zeros((2, 100, 80), np.uint8), y=Y[:2]))
    assert examples.shape == (1, 64, 64)
    assert everything(examples)[1].shape == (2, 1, 64, 64)


def test_rows(tmp_path):
    x = RANDOM.normal(size=(6, 4))
    x[1, 2], x[4, 0] = np.nan, 1e300
    examples = open_labelled(saved(tmp_path, x=x, y=np.array(["a", "b", "c", "a", "b", "c"])))
    assert (examples.shape, examples.columns) == ((4,), None)
    assert examples.labels == ["a", "c", "a", "c"]
    assert whys(examples) == {
        "row 2": "column 'column 3' is missing or not finite",
        "row 5": "column 'column 1' is missing or not finite",
    }
    np.testing.assert_array_equal(everything(examples)[1].numpy(), x[[0, 2, 3, 5]].astype(np.float32))


def test_images_that_cannot_be_used_are_listed(tmp_path):
    x = (GREY / 255).astype(np.float32)
    x[1, 0, 0] = np.inf
    examples = open_labelled(saved(tmp_path, x=x, y=np.array([0, 1, np.nan, 0, 1, 1])))
    assert whys(examples) == {"row 2": "it holds values that are not finite", "row 3": "it has no label"}
    assert examples.names == ["row 1", "row 4", "row 5", "row 6"]
    np.testing.assert_array_equal(everything(examples)[1].numpy()[:, 0], GREY[[0, 3, 4, 5]])


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.array([3, 4]), ["3", "4"]),
        (np.array([3.0, 4.5]), ["3", "4.5"]),
        (np.array([[3], [4]]), ["3", "4"]),
        (np.array(["cafe\u0301", "猫"]), ["caf\u00e9", "猫"]),
        (np.array(["猫".encode(), b"a"]), ["猫", "a"]),
        (np.array([True, False]), ["True", "False"]),
    ],
)
def test_labels(tmp_path, y, expected):
    assert open_labelled(saved(tmp_path, x=GREY[:2], y=y)).labels == expected


def test_class_names_of_an_array_file(tmp_path):
    path = saved(tmp_path, x_train=GREY, y_train=Y, class_names=np.array(["zero", "one", "two"]))
    assert open_labelled(path).labels == ["zero", "one", "two", "zero", "one", "two"]
    with pytest.raises(ValueError, match="label '2' is not among its 2 class names"):
        open_labelled(saved(tmp_path, x_train=GREY, y_train=Y, class_names=np.array(["zero", "one"])))


class Trap:
    """An object that leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def test_nothing_is_unpickled(tmp_path):
    x = np.empty(2, object)
    x[:] = Trap(tmp_path / "mark")
    for arrays in ({"x": x, "y": Y[:2]}, {"x": GREY[:2], "y": x}):
        with pytest.raises(ValueError, match="holds objects"):
            open_labelled(saved(tmp_path, **arrays))
    (tmp_path / "wave.npz").write_bytes(pickle.dumps(Trap(tmp_path / "mark")))
    with pytest.raises(ValueError, match=r"is no \.npz file, or damaged"):
        open_labelled(tmp_path / "wave.npz")
    assert not (tmp_path / "mark").exists()


def test_of_a_damaged_archive_no_more_than_a_sentence_is_said(tmp_path):
    path = saved(tmp_path, x=GREY, y=Y)
    content = bytearray(path.read_bytes())
    content[26:28] = (700).to_bytes(2, "little")  # the length of the first name
    path.write_bytes(content)
    with pytest.raises(ValueError, match="or damaged: File name in directory") as error:
        open_labelled(path)
    assert len(str(error.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    ("arrays", "like", "why"),
    [
        ({"a": GREY}, None, "expected are arrays called x/y, .* and it holds 'a'"),
        ({"x": GREY}, None, "expected are arrays called"),
        ({"x": GREY, "y": Y[:5]}, None, "the labels must be one for each of 6 examples"),
        ({"x": GREY, "y": np.eye(6)}, None, "the labels must be one for each of 6 examples"),
        ({"x": GREY[:0], "y": Y[:0]}, None, "the examples must be an array of numbers"),
        ({"x": np.array(["a"]), "y": Y[:1]}, None, "the examples must be an array of numbers"),
        ({"x": np.zeros(6), "y": Y}, None, r"expected are rows \[N, F\] or images"),
        ({"x": np.zeros((6, 5, 5, 5)), "y": Y}, None, r"expected are rows \[N, F\] or images"),
        ({"x": GREY - 300.0, "y": Y}, None, "values of images must be 0 to 255, or 0 to 1"),
        ({"x": GREY.astype(np.int32) * 1000, "y": Y}, None, "values of images must be 0 to 255, or 0 to 1"),
        ({"x": GREY * np.nan, "y": Y}, None, "holds no image that can be used"),
        ({"x": GREY, "y": Y}, (4,), "holds images, and the model learnt rows of 4"),
        ({"x": np.ones((6, 3)), "y": Y}, (4,), "holds rows of 3 numbers, and the model learnt rows of 4"),
        ({"x": np.ones((6, 3)), "y": Y}, (3, 8, 9), "and the model learnt images 8x9 in colour"),
    ],
)
def test_what_is_wrong_with_arrays_is_said(tmp_path, arrays, like, why):
    with pytest.raises(ValueError, match=why):
        open_labelled(saved(tmp_path, **arrays), like)


def test_a_huge_promise_is_not_believed(tmp_path):
    """A file of a few bytes that says it holds a terabyte is refused before memory is asked for."""
    import io
    import zipfile

    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": "|u1", "fortran_order": False, "shape": (1 << 20, 1024, 1024)}
    )
    path = tmp_path / "wave.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content.getvalue() + bytes(100))
        archive.writestr("y.npy", content.getvalue())
    with pytest.raises(ValueError, match="x is not as long as it says"):
        open_labelled(path)


def test_fingerprint_of_arrays(tmp_path):
    first = fingerprint(open_labelled(saved(tmp_path, x=GREY, y=Y)))
    assert fingerprint(open_labelled(tmp_path / "wave.npz")) == first
    assert fingerprint(open_labelled(saved(tmp_path, x=GREY, y=Y[::-1]))) != first


@pytest.mark.parametrize("images", [True, False])
def test_labels_with_characters_that_do_not_exist(tmp_path, images):
    x = np.arange(100, dtype=np.float32).reshape((4, 5, 5) if images else (4, 25)) / 100
    for code, said in (0x110000, None), (0x01000041, None), (0xFFFFFFFF, None), (0xD800, "\\ud800"):
        y = np.array([65, 66, 65, code], np.uint32).view("U1")
        np.savez(tmp_path / "wave.npz", x=x, y=y)
        if said is None:
            with pytest.raises(ValueError, match=r"wave\.npz: the labels hold characters that do not exist"):
                open_labelled(tmp_path / "wave.npz")
        else:
            assert open_labelled(tmp_path / "wave.npz").labels == ["A", "B", "A", said]
