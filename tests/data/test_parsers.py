"""Every official format, from tiny archives to exact arrays."""

import gzip
import io
import os
import pickle
from contextlib import suppress

import numpy as np
import pytest

from tests.data import archives
from ucb.data.catalogue import CATALOGUE, find
from ucb.data.parsers import mat_arrays, parse, split_by_hash


def same(arrays, expected):
    for found, wanted in zip(arrays, expected, strict=False):
        np.testing.assert_array_equal(found, wanted)


def official(name, folder):
    return [folder / file.name for file in find(name).files]


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("zipped", [True, False])
def test_idx(tmp_path, name, zipped):
    expected = archives.write_idx(tmp_path, zipped)
    files = [path if zipped else path.with_suffix("") for path in official(name, tmp_path)]
    parsed = parse(find(name), files)
    same(parsed.arrays, expected)
    assert parsed.arrays.class_names == find(name).classes


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (archives.idx(archives.pixels(5, 28, 28))[:-1], "3919 bytes where 3920 should be"),
        (archives.idx(archives.pixels(5, 28)), "not an idx file"),
        (b"\0\0\x08\x03\0\0", "not an idx file"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "damaged"),
        (b"", "not an idx file"),
        (gzip.compress(archives.idx(archives.pixels(5, 28, 28)))[:-9], "damaged"),
        (b"\x1f\x8b rubbish", "damaged"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path, content, why):
    archives.write_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"train-images-idx3-ubyte\.gz.*{why}"):
        parse(find("mnist"), official("mnist", tmp_path))


@pytest.mark.parametrize("packed", [True, False])
def test_cifar10(tmp_path, packed):
    members, expected = archives.cifar10_members()
    path = archives.tar(tmp_path / "cifar-10-binary.tar.gz", members) if packed else archives.unpack(tmp_path, members)
    parsed = parse(find("cifar10"), [path])
    same(parsed.arrays, expected)
    assert parsed.arrays.class_names[3] == "cat"


def test_cifar100_has_its_fine_labels(tmp_path):
    members, expected = archives.cifar100_members()
    parsed = parse(find("cifar100"), [archives.tar(tmp_path / "cifar-100-binary.tar.gz", members)])
    same(parsed.arrays, expected)


def test_a_damaged_cifar_batch_is_named(tmp_path):
    members, _ = archives.cifar10_members()
    members["cifar-10-batches-bin/data_batch_3.bin"] += b"!"
    with pytest.raises(ValueError, match=r"data_batch_3\.bin is damaged"):
        parse(find("cifar10"), [archives.tar(tmp_path / "c.tar.gz", members)])
    del members["cifar-10-batches-bin/data_batch_3.bin"]
    with pytest.raises(ValueError, match=r"c\.tar\.gz lacks data_batch_3\.bin$"):
        parse(find("cifar10"), [archives.tar(tmp_path / "c.tar.gz", members)])


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return os.mkdir, (self.trace,)


def test_a_hostile_pickle_does_nothing(tmp_path):
    trace = tmp_path / "trace"
    bomb = pickle.dumps(Hostile(trace))
    with pytest.raises(FileExistsError):  # it is hostile: once here, and seen to work
        pickle.loads(bomb), pickle.loads(bomb)
    trace.rmdir()
    python = {f"cifar-10-batches-py/{name}": bomb for name in ("data_batch_1", "test_batch", "batches.meta")}
    with pytest.raises(ValueError, match=r"Python version, made of pickles.*cifar-10-binary\.tar\.gz"):
        parse(find("cifar10"), [archives.tar(tmp_path / "cifar-10-binary.tar.gz", python)])
    members, expected = archives.cifar10_members(python)
    same(parse(find("cifar10"), [archives.tar(tmp_path / "cifar-10-binary.tar.gz", members)]).arrays, expected)
    members["cifar-10-batches-bin/test_batch.bin"] = bomb
    with pytest.raises(ValueError, match=r"test_batch\.bin is damaged"):
        parse(find("cifar10"), [archives.tar(tmp_path / "cifar-10-binary.tar.gz", members)])
    assert not trace.exists()


def test_svhn(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    x, y = archives.pixels(5, 32, 32, 3), np.array([10, 1, 2, 9, 10], np.uint8)
    for name, part in (("train_32x32.mat", slice(0, 3)), ("test_32x32.mat", slice(3, 5))):
        content = {"X": x[part].transpose(1, 2, 3, 0), "y": y[part, None]}
        scipy_io.savemat(tmp_path / name, content, do_compression=True)
    parsed = parse(find("svhn"), official("svhn", tmp_path))
    same(parsed.arrays, (x[:3], [0, 1, 2], x[3:], [9, 0]))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint32, np.float32, np.float64])
def test_arrays_of_matlab_are_read_as_scipy_writes_them(kind, compressed):
    """A name of up to four letters stands in its tag, and labels of other types than bytes are labels too."""
    scipy_io = pytest.importorskip("scipy.io")
    arrays = {"X": archives.pixels(3, 4, 5).astype(kind), "a_longer_name": np.arange(6, dtype=kind)[None]}
    file = io.BytesIO()
    scipy_io.savemat(file, arrays, do_compression=compressed)
    found = dict(mat_arrays(file.getvalue(), 10_000))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    if compressed:
        with pytest.raises(ValueError, match="unpacks to more than the 20 bytes"):
            dict(mat_arrays(file.getvalue(), 20))


def test_a_mat_file_whose_tags_are_nonsense_is_refused_or_read():
    """Each byte of its tags in turn; a reader that looks types up by number may read beyond its table."""
    scipy_io = pytest.importorskip("scipy.io")
    file = io.BytesIO()
    scipy_io.savemat(file, {"X": archives.pixels(4, 4)})
    whole = file.getvalue()
    for place in range(128, len(whole) - 16):
        for value in (0, 4, 15, 255):
            changed = bytearray(whole)
            changed[place] = value
            with suppress(ValueError):
                dict(mat_arrays(bytes(changed), 10_000))


def test_a_wrong_mat_file_is_named(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    paths = official("svhn", tmp_path)
    whole = io.BytesIO()
    scipy_io.savemat(whole, {"X": archives.pixels(32, 32, 3, 2), "y": np.ones((2, 1), np.uint8)}, do_compression=True)
    wrong = [b"", b"rubbish" * 100, whole.getvalue()[:-20]]
    for content in ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, {"X": np.zeros((2, 32)), "y": np.ones((2, 1))}):
        file = io.BytesIO()
        scipy_io.savemat(file, content)
        wrong.append(file.getvalue())
    for content in wrong:
        paths[0].write_bytes(content)
        with pytest.raises(ValueError, match=r"train_32x32\.mat is not a file of SVHN"):
            parse(find("svhn"), paths)
    scipy_io.savemat(paths[0], {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.full((2, 1), 11, np.uint8)})
    with pytest.raises(ValueError, match="from 1 to 10"):
        parse(find("svhn"), paths)


def test_gtsrb(tmp_path):
    expected = archives.write_gtsrb(tmp_path)
    parsed = parse(find("traffic_signs"), official("traffic_signs", tmp_path))
    same(parsed.arrays, expected)
    assert len(parsed.arrays.class_names) == 43


def test_gtsrb_unpacked_and_incomplete(tmp_path):
    import zipfile

    expected = archives.write_gtsrb(tmp_path)
    for path in official("traffic_signs", tmp_path):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(tmp_path / "unpacked")
    same(parse(find("traffic_signs"), [tmp_path / "unpacked"]).arrays, expected)
    (tmp_path / "unpacked" / "GTSRB/Final_Test/Images/00001.ppm").unlink()
    with pytest.raises(ValueError, match=r"differ in 00001\.ppm"):
        parse(find("traffic_signs"), [tmp_path / "unpacked"])
    (tmp_path / "unpacked" / "GT-final_test.csv").unlink()
    with pytest.raises(ValueError, match=r"GT-final_test\.csv is missing"):
        parse(find("traffic_signs"), [tmp_path / "unpacked"])


def test_a_damaged_sign_is_named(tmp_path):
    archives.write_gtsrb(tmp_path)
    root = "GTSRB/Final_Training/Images/00000/"
    archives.zipped(tmp_path / "GTSRB_Final_Training_Images.zip", {f"{root}00000_00000.ppm": b"P6\n32 32\n255\n..."})
    with pytest.raises(ValueError, match=r"00000_00000\.ppm is damaged"):
        parse(find("traffic_signs"), official("traffic_signs", tmp_path))


@pytest.mark.parametrize("packed", [True, False])
def test_notmnist(tmp_path, packed):
    members, known = archives.notmnist_members()
    path = archives.tar(tmp_path / "n.tar.gz", members) if packed else archives.unpack(tmp_path, members)
    arrays, unreadable = parse(find("notmnist"), [path])
    assert unreadable == 2
    assert (len(arrays.x_train), len(arrays.x_test)) == (180, 20)
    np.testing.assert_array_equal(np.bincount(arrays.y_test), [2] * 10)
    label = {picture.tobytes(): "ABCDEFGHIJ".index(name[0]) for name, picture in known.items()}
    found = [*zip(arrays.x_train, arrays.y_train, strict=True), *zip(arrays.x_test, arrays.y_test, strict=True)]
    assert {picture.tobytes(): int(of) for picture, of in found} == label


def test_the_split_is_fixed(tmp_path):
    """Names decide it, so it is the same on every machine, in an archive and in a folder."""
    found = {f"{label}/{number}.png": None for label in "AB" for number in range(20)}
    train, test = split_by_hash(tmp_path, found, ("A", "B"))
    assert test == ["A/8.png", "B/0.png", "B/12.png", "A/15.png"]  # as sha256sum orders them
    assert sorted(train + test) == sorted(found)
    assert split_by_hash(tmp_path, dict(reversed(found.items())), ("A", "B")) == (train, test)
    with pytest.raises(ValueError, match="class C has 0 readable images"):
        split_by_hash(tmp_path, found, ("A", "C"))


def test_lfw_takes_the_faces_of_the_most_frequent_people(tmp_path):
    people = {f"Person_{number:03}": 2 for number in range(99)} | {"Zoe": 4, "Single": 1, "Another": 3}
    path = archives.tar(tmp_path / "lfw-funneled.tgz", archives.faces("lfw_funneled/", people))
    arrays, _ = parse(find("lfw100"), [path])
    assert len(arrays.class_names) == 100
    assert list(arrays.class_names) == sorted(arrays.class_names)
    assert {"Zoe", "Another"} < set(arrays.class_names)
    assert not {"Single", "Person_098"} & set(arrays.class_names)  # among equals the alphabet decides
    assert arrays.x_train.shape == (4 + 3 + 98 * 2 - 100, 32, 32, 3)
    assert len(arrays.x_test) == 100
    for picture, label in zip(arrays.x_test, arrays.y_test, strict=True):  # the middle only, without the black edge
        assert (picture[..., 0] == sum(arrays.class_names[label].encode()) % 256).all()
        assert (picture[..., 2] == 200).all()


def test_facescrub_takes_whole_images(tmp_path):
    people = {f"Person_{number:03}": 2 for number in range(101)}
    archives.unpack(tmp_path, archives.faces("", people, size=20, kind="JPEG"))
    arrays, _ = parse(find("facescrub100"), [tmp_path])
    assert arrays.x_train.shape == arrays.x_test.shape == (100, 32, 32, 3)
    assert int(arrays.x_train[0, 0, 0].max()) < 60  # the dark edge is still there
    with pytest.raises(ValueError, match="images in 1 class folders; 100 are needed"):
        parse(find("facescrub100"), [archives.unpack(tmp_path / "few", archives.faces("", {"One": 2}, size=8))])


def test_the_same_image_twice_is_refused(tmp_path):
    picture = archives.image(archives.pixels(28, 28), "PNG")
    archives.unpack(tmp_path, {"train/A/1.png": picture, "test/A/1.png": picture})
    with pytest.raises(ValueError, match=r"more than one A/1\.png"):
        parse(find("notmnist"), [tmp_path])


def test_every_data_set_has_a_parser_and_facts():
    assert list(CATALOGUE) == (
        ["mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "notmnist", "traffic_signs", "facescrub100", "lfw100"]
    )
    for known in CATALOGUE.values():
        assert known.classes is None or len(set(known.classes)) == known.n_classes
        for slot in known.files:
            for file in slot.forms():
                algorithm, _, digits = file.digest.partition(":")
                assert len(bytes.fromhex(digits)) == {"md5": 16, "sha256": 32}[algorithm]
