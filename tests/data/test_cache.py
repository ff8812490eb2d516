"""Array files and the folder they are kept in."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.data import archives
from ucb.data import cache
from ucb.data.cache import load, present, verify
from ucb.data.readers.arrays import Arrays, read_arrays, write_arrays

GOOD = {
    "x_train": archives.pixels(6, 8, 8, 3),
    "y_train": np.array([0, 1, 2, 0, 1, 2], np.uint8),
    "x_test": archives.pixels(3, 8, 8, 3),
    "y_test": np.array([2, 1, 0], np.int64),
    "class_names": np.array(["a", "bee", "c"]),
}


def test_what_is_written_is_read(tmp_path):
    for shape in ((8, 8), (8, 8, 3)):
        x = archives.pixels(6, *shape)
        arrays = Arrays(x, GOOD["y_train"], x[:3], GOOD["y_test"], ("a", "bee", "c"))
        write_arrays(tmp_path / "deep" / "x.npz", arrays)
        found = read_arrays(tmp_path / "deep" / "x.npz")
        assert found.class_names == ("a", "bee", "c")
        for one, other in zip(found[:4], arrays[:4], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.npz"]
    assert str(found) == "6 + 3 images 8x8x3, 3 classes"


def test_a_file_that_numpy_wrote_is_used_as_it_is(cache_folder):
    cache_folder.mkdir()
    for save in (np.savez, np.savez_compressed):
        save(cache_folder / "lfw100.npz", **GOOD)
        np.testing.assert_array_equal(load("lfw100").x_train, GOOD["x_train"])


WRONG = {
    "x_train must be uint8": {"x_train": GOOD["x_train"].astype(np.float32)},
    "x_test must be uint8": {"x_test": GOOD["x_test"][..., :2]},
    "y_train must be whole numbers": {"y_train": GOOD["y_train"].astype(float)},
    "y_test must be whole numbers": {"y_test": GOOD["y_test"][:, None]},
    "x_test has 3 images, y_test 2 labels": {"y_test": GOOD["y_test"][:2]},
    "y_train goes from 0 to 3": {"y_train": np.array([0, 1, 2, 3, 0, 1])},
    "y_test goes from -1 to 2": {"y_test": np.array([2, 1, -1])},
    "x_test is empty": {"x_test": GOOD["x_test"][:0], "y_test": GOOD["y_test"][:0]},
    r"an image is \[8, 8, 3\] in training": {"x_test": archives.pixels(3, 8, 8)},
    "class_names must be text": {"class_names": np.arange(3)},
    "holds objects, which could run code": {"class_names": np.array(["a", "bee", None], object)},
}


@pytest.mark.parametrize("why", WRONG)
def test_what_does_not_fit_is_said(tmp_path, why):
    np.savez(tmp_path / "x.npz", **(GOOD | WRONG[why]))
    with pytest.raises(ValueError, match=rf"x\.npz.*{why}"):
        read_arrays(tmp_path / "x.npz")


class Hostile:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.mkdir, (self.trace,)


def test_nothing_is_unpickled(tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "x.npz"
    np.savez(path, **(GOOD | {"y_test": np.array([Hostile(trace)] * 3, object)}))
    with pytest.raises(ValueError, match="not an array file of ucb"):
        read_arrays(path)
    path.write_bytes(pickle.dumps(Hostile(trace)))
    with pytest.raises(ValueError, match="not an array file of ucb"):
        read_arrays(path)
    assert not trace.exists()


def test_damage_is_named(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **GOOD)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[600] ^= 255
    missing = {key: value for key, value in GOOD.items() if key != "y_test"}
    for content in (b"", b"rubbish", whole[: len(whole) // 2], bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.npz is not an array file of ucb, or damaged"):
            read_arrays(path)
    with zipfile.ZipFile(path, "w") as archive:
        for key in GOOD:
            archive.writestr(f"{key}.npy", b"rubbish")
    with pytest.raises(ValueError, match="x_train is no array"):
        read_arrays(path)
    np.savez(path, **missing)
    with pytest.raises(ValueError, match="y_test is missing"):
        read_arrays(path)
    with path.open("wb") as file:
        np.save(file, GOOD["x_train"])
    with pytest.raises(ValueError, match="single array"):
        read_arrays(path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    arrays = Arrays(*(GOOD[key] for key in ("x_train", "y_train", "x_test", "y_test")), ("a", "bee", "c"))
    write_arrays(path, arrays)
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        write_arrays(path, arrays)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_where_files_are(monkeypatch):
    monkeypatch.setenv("UCB_DATA", "/somewhere")
    assert cache.folder() == Path("/somewhere")
    monkeypatch.delenv("UCB_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache.folder() == Path("/caches/ucb/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.folder() == Path("/home/me/.cache/ucb/data")


def test_what_is_not_there_is_explained(cache_folder):
    with pytest.raises(FileNotFoundError) as told:
        load("cifar10")
    for word in (str(cache_folder / "cifar10.npz"), "ucb data get cifar10", "~kriz/cifar-10-binary.tar.gz"):
        assert word in str(told.value)
    assert "ucb data import cifar10 FILES" in str(told.value)
    with pytest.raises(FileNotFoundError, match="ucb data import facescrub100 FOLDER"):
        load("facescrub100")
    with pytest.raises(ValueError, match="there is no data set 'cifar': did you mean cifar10"):
        load("cifar")


def test_verify(cache_folder):
    cache_folder.mkdir()
    np.savez(cache_folder / "svhn.npz", **GOOD)
    assert present() == ["svhn"]
    with pytest.raises(ValueError, match=r"svhn\.npz holds 6 \+ 3 images 8x8x3, 3 classes; SVHN"):
        verify("svhn")
    right = {"x_train": archives.pixels(6, 32, 32, 3), "x_test": archives.pixels(3, 32, 32, 3)}
    names = {"class_names": np.array(list("0123456789"))}
    np.savez(cache_folder / "svhn.npz", **(GOOD | right | names))
    with pytest.raises(ValueError, match="holds 6 images to train; SVHN, cropped digits has 73,257"):
        verify("svhn")
