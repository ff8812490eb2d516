import hashlib
import struct

import pytest
import torch

from tools.pack_mnist import pack, read_raw
from ucb.data.catalogue import find
from ucb.data.streams import load_mnist
from ucb.data.streams.sources import IDX_SIZES, find_packed_file, unpack

IDX_FILES = [file.instead[0] for file in find("mnist").files]


def idx_files():
    """The four published files, built anew from the tensors."""
    digits = load_mnist()
    return [
        struct.pack(">IIII", 2051, len(digits.x_train), 28, 28) + digits.x_train.numpy().tobytes(),
        struct.pack(">II", 2049, len(digits.y_train)) + digits.y_train.to(torch.uint8).numpy().tobytes(),
        struct.pack(">IIII", 2051, len(digits.x_test), 28, 28) + digits.x_test.numpy().tobytes(),
        struct.pack(">II", 2049, len(digits.y_test)) + digits.y_test.to(torch.uint8).numpy().tobytes(),
    ]


def test_the_digits_are_those_that_were_published():
    assert [hashlib.md5(file).hexdigest() for file in idx_files()] == [
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ]


def test_shapes_types_and_counts_per_class():
    digits = load_mnist()
    assert digits.x_train.shape == (60000, 1, 28, 28)
    assert digits.x_test.shape == (10000, 1, 28, 28)
    assert digits.x_train.dtype == digits.x_test.dtype == torch.uint8
    assert digits.y_train.dtype == digits.y_test.dtype == torch.int64
    assert digits.y_train.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert digits.y_test.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_its_mean_and_deviation_are_the_ones_used_to_normalise():
    pixels = load_mnist().x_train.double() / 255
    assert float(pixels.mean()) == pytest.approx(0.1307, abs=5e-5)
    assert float(pixels.std()) == pytest.approx(0.3081, abs=5e-5)


def test_loaded_once():
    assert load_mnist().x_train is load_mnist().x_train


def test_packed_file_is_small():
    assert find_packed_file().stat().st_size < 10e6


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "digits.xz"
    packed = bytearray(find_packed_file().read_bytes())
    if damage == "flip":
        packed[len(packed) // 2] ^= 1
    path.write_bytes({"flip": packed, "truncate": packed[:-1], "empty": b""}[damage])
    with pytest.raises(ValueError, match=r"digits\.xz is damaged"):
        unpack(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"digits\.xz"):
        unpack(tmp_path / "digits.xz")


def test_packing_refuses_other_files(tmp_path):
    for file, content in zip(IDX_FILES, idx_files(), strict=True):
        (tmp_path / file.name).write_bytes(content)
    assert f"md5:{hashlib.md5(read_raw(tmp_path)[: IDX_SIZES[0]]).hexdigest()}" == IDX_FILES[0].digest
    with (tmp_path / IDX_FILES[3].name).open("r+b") as labels:
        labels.seek(100)
        labels.write(b"\x0b")
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte is not the file of MNIST"):
        pack(tmp_path, tmp_path / "out.xz")
    assert not (tmp_path / "out.xz").exists()


@pytest.mark.slow
def test_packing_gives_a_file_that_unpacks_to_the_same(tmp_path, monkeypatch):
    """Another liblzma may compress to other bytes, so it is the content that is compared."""
    for file, content in zip(IDX_FILES, idx_files(), strict=True):
        (tmp_path / file.name).write_bytes(content)
    target = tmp_path / "out.xz"
    digest = pack(tmp_path, target)
    monkeypatch.setattr("ucb.data.streams.sources.PACKED_SHA256", digest)
    for got, wanted in zip(unpack(target), load_mnist(), strict=True):
        assert torch.equal(got, wanted)
