"""Small files that would take much memory: each kind has a ceiling, refused before it is read."""

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from tests.data import archives
from tests.data.readers.files import everything
from tests.incremental.data import blobs
from ucb.data.parsers import idx_array, read_svhn
from ucb.data.readers import images, open_labelled
from ucb.data.readers.archives import names as member_names
from ucb.data.readers.arrays import read_arrays
from ucb.engine import checkpoint
from ucb.incremental import Model, learn
from ucb.storage import RefusedFileError, ceilings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@pytest.fixture
def low(monkeypatch):
    """Ceilings a thousand times as low, so that the files of the tests are small."""
    monkeypatch.setattr(ceilings, "UNPACKED", 1_000_000)
    monkeypatch.setattr(ceilings, "MEMBER", 500_000)


def zeros(path, **arrays):
    """An .npz file of a few kilobytes, whatever it unpacks to."""
    np.savez_compressed(path, **arrays)
    assert path.stat().st_size < 20_000
    return path


@pytest.mark.usefixtures("low")
def test_arrays_that_unpack_to_much(tmp_path):
    path = zeros(tmp_path / "wave.npz", x=np.zeros((3000, 100)), y=np.zeros(3000, int))
    with pytest.raises(RefusedFileError, match=r"wave\.npz unpacks to 2,400,000 bytes and more, and 1,000,000 are the"):
        open_labelled(path)
    x, y = np.zeros((2000, 28, 28), np.uint8), np.zeros(2000, np.uint8)
    zeros(path, x_train=x, y_train=y, x_test=x, y_test=y, class_names=np.array(["a"]))
    with pytest.raises(RefusedFileError, match="unpacks to"):
        read_arrays(path)


@pytest.mark.usefixtures("low")
def test_arrays_that_their_file_has_room_for_are_read(tmp_path):
    np.savez(tmp_path / "wave.npz", x=np.random.default_rng(0).random((3000, 100)), y=np.arange(3000) % 2)
    assert len(open_labelled(tmp_path / "wave.npz")) == 3000


def test_arrays_beyond_the_memory(tmp_path, monkeypatch):
    path = zeros(tmp_path / "wave.npz", x=np.zeros((3000, 100)), y=np.zeros(3000, int))
    monkeypatch.setattr(ceilings, "memory", lambda: 100_000)
    with pytest.raises(RefusedFileError, match="100,000 are the most"):
        open_labelled(path)


def test_tables_with_a_million_columns(tmp_path):
    path = tmp_path / "wave.csv"
    path.write_text(",".join([*(f"c{n}" for n in range(999_999)), "label"]) + "\n")
    with pytest.raises(ValueError, match=r"wave\.csv has 1,000,000 columns, and 100,000 are the most"):
        open_labelled(path)
    with pytest.raises(ValueError, match="100,001 columns"):
        open_labelled(zeros(tmp_path / "wave.npz", x=np.zeros((2, 100_001), np.uint8), y=np.arange(2)))


@pytest.mark.parametrize("row", ["1," * 600, '"' + "1\n" * 600 + '",1\n', '1,"\n",' * 200])
def test_a_row_that_never_ends(tmp_path, monkeypatch, row):
    """Whether in one line or in many, of which each ends inside quotes."""
    monkeypatch.setattr(ceilings, "LINE", 1000)
    path = tmp_path / "wave.csv"
    path.write_text("p,label\n" + "1,a\n" * 500 + row)
    with pytest.raises(ValueError, match=r"wave\.csv: a row has more than 1,000 characters"):
        open_labelled(path)


def test_rows_of_which_none_can_be_used_are_not_listed_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(ceilings, "UNUSABLE", 100)
    path = tmp_path / "wave.csv"
    path.write_text("p,label\n1,a\n" + "\n".join("x,a" for _ in range(200)))
    with pytest.raises(ValueError, match=r"more than 100 rows cannot be used; row 2: column 'p' holds 'x'"):
        open_labelled(path, (1,))


@pytest.mark.usefixtures("low")
def test_a_parquet_file_of_one_value_over_and_over(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "wave.parquet"
    parquet.write_table(arrow.table({"p": np.zeros(1_000_000), "label": np.zeros(1_000_000, int)}), path)
    with pytest.raises(ValueError, match=r"wave\.parquet holds 1,000,000 rows, which take 4,000,000 bytes, and"):
        open_labelled(path)


@pytest.mark.parametrize("size", [1 << 36, 1 << 32])
def test_sparse_model_files(tmp_path, monkeypatch, size):
    from ucb.incremental import trunks

    monkeypatch.setattr(trunks, "UNITS", 40)
    path = tmp_path / "m.ucb"
    learn(path, blobs("ab", 10))
    os.truncate(path, size)
    why = "68,719,476,736 bytes, and ucb reads 8,589,934,592" if size > ceilings.MODEL else "its size is not what its h"
    with pytest.raises(OSError, match=why):
        Model.open(path)


def test_a_checkpoint_beyond_the_memory(tmp_path, monkeypatch):
    checkpoints = checkpoint.FolderCheckpoints(tmp_path)
    checkpoints.save({"number": 1})
    os.truncate(checkpoints.path, 1 << 30)
    monkeypatch.setattr(ceilings, "memory", lambda: 1 << 20)
    with pytest.raises(RefusedFileError, match=r"1,073,741,824 bytes, and this machine has memory for 1,048,576 more"):
        checkpoints.load()


def header(kind, size, name="a"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


BOMBS = {
    "a name": (header(tarfile.GNUTYPE_LONGNAME, 3 << 30), "a header has 3,221,225,472 bytes, and 1,048,576 are the"),
    "times": (header(tarfile.XHDTYPE, 3 << 30), "a header has 3,221,225,472 bytes"),
    "a map": (header(tarfile.GNUTYPE_SPARSE, 512)[:482] + b"\1" + bytes(29), "is damaged, or no archive"),
    "folders": (header(tarfile.DIRTYPE, 0, "d/") * 3000, "3 files so far, and 2 are the most"),
    "a file": (header(tarfile.REGTYPE, 3 << 30), "it has 3,221,225,472 bytes, and 268,435,456 are the most"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_tar_bombs(tmp_path, monkeypatch, bomb):
    content, why = BOMBS[bomb]
    if bomb == "folders":
        monkeypatch.setattr(ceilings, "MEMBERS", 2)
    path = tmp_path / "archive.tar.gz"
    path.write_bytes(gzip.compress(content + bytes(1 << 22)))
    with pytest.raises(ValueError, match=rf"archive\.tar\.gz.*{why}"):
        member_names(path)


@pytest.mark.usefixtures("low")
def test_official_files_that_unpack_to_much(tmp_path):
    path = archives.zipped(tmp_path / "a.zip", {str(n): bytes(400_000) for n in range(3)})
    with pytest.raises(ValueError, match=r"a\.zip: 2 is refused.*1,200,000 bytes so far, and 1,000,000 are the most"):
        member_names(path)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(archives.idx(np.zeros((1000, 28, 28), np.uint8))))
    with pytest.raises(ValueError, match=r"images\.gz is absurdly large: it unpacks to more than 500,000 bytes"):
        idx_array(path, 3)
    scipy_io = pytest.importorskip("scipy.io")
    content = {"X": np.zeros((32, 32, 3, 500), np.uint8), "y": np.ones((500, 1), np.uint8)}
    scipy_io.savemat(tmp_path / "train.mat", content, do_compression=True)
    with pytest.raises(ValueError, match=r"train\.mat.*unpacks to more than the 1,000,000 bytes that are the most"):
        read_svhn([tmp_path / "train.mat"] * 2, ())


MODES = {
    "L": lambda noise: Image.fromarray(noise[..., 0]),
    "RGB": lambda noise: Image.fromarray(noise[..., :3]),
    "RGBA": Image.fromarray,
    "P": lambda noise: Image.fromarray(noise[..., :3]).quantize(16),
    "I;16": lambda noise: Image.fromarray(noise[..., 0].astype(np.uint16) * 257),
    "F": lambda noise: Image.fromarray(noise[..., 0].astype(np.float32)),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_large_image_in_strips_is_the_image(tmp_path, monkeypatch, mode):
    """Means over blocks, strip by strip, are those of the whole image, but for rounding."""
    noise = np.random.default_rng(0).integers(0, 256, (211, 333, 4), dtype=np.uint8)
    noise[:100] //= 200  # in fractions a dark strip is not taken for one of another scale
    image = MODES[mode](noise)
    file = io.BytesIO()
    image.save(file, "TIFF" if mode == "F" else "PNG")
    monkeypatch.setattr(images, "LARGE", 1000)
    monkeypatch.setattr(images, "STRIP", 5000)
    found = images.load_plain(images.open_image(file, 50), 50)
    whole = images.to_plain(image).reduce((6, 4))
    assert found.mode == whole.mode
    assert np.abs(np.asarray(found).astype(int) - np.asarray(whole)).max() <= 1


PEAK = """
import re, sys
from pathlib import Path
from tests.data.readers.files import everything
from ucb.data.readers import open_labelled
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
before = peak()
found, x = everything(open_labelled(Path(sys.argv[1])))
print(len(found), peak() - before)
"""


@pytest.mark.slow
def test_large_images_take_turns(tmp_path):
    """Four of 8192 x 8192 in four channels, 256 MiB each; threads may keep what they freed."""
    (tmp_path / "a").mkdir()
    Image.new("RGBA", (8192, 8192), (9, 99, 200, 128)).save(tmp_path / "a" / "0.png", compress_level=1)
    for number in range(1, 4):
        os.link(tmp_path / "a" / "0.png", tmp_path / "a" / f"{number}.png")
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    number, mebibytes = answer.stdout.split()
    assert int(number) == 4
    assert float(mebibytes) < 1024


def test_ceilings_stand_in_the_documents():
    """Every figure of the table is the code's."""
    with open(os.path.join(ROOT, "docs", "learn-from-your-data.md"), encoding="utf-8") as file:
        page = file.read()
    for name in ("JSON", "CHECKPOINT", "MODEL", "IMAGE", "TABLE"):
        value = getattr(ceilings, name)
        words = f"{value >> 30} GiB" if value >> 30 else f"{value >> 20} MiB"
        assert re.search(rf"\|[^|\n]*\| {words}[ ,|]", page), name
    for value in (ceilings.COLUMNS, ceilings.PIXELS, ceilings.LINE, ceilings.UNUSABLE):
        assert f"{value:,}" in page


def test_everything_small_is_read(tmp_path):
    (tmp_path / "wave.csv").write_text("p,label\n1,a\n2,b\n")
    assert everything(open_labelled(tmp_path / "wave.csv"))[0] == [0, 1]
