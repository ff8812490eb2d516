"""Damaged files are skipped or answered with a sentence, whatever is wrong with them.

Pytest makes every warning an error, so none of Pillow's or numpy's may come out either.
"""

import io
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from ucb.data.readers import open_labelled, open_unlabelled

from .files import drawn, everything

OFTEN = settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["write", "insert", "delete", "cut", "repeat"]),
        st.integers(0, 1 << 20),
        st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=8,
)


def mutated(content, edits):
    changed = bytearray(content)
    for kind, where, piece in edits:
        place = where % (len(changed) + 1)
        if kind == "write":
            changed[place : place + len(piece)] = piece
        elif kind == "insert":
            changed[place:place] = piece
        elif kind == "delete":
            del changed[place : place + len(piece)]
        elif kind == "cut":
            del changed[place:]
        else:
            changed[place:place] = changed[place : place + 64]
    return bytes(changed)


def image_bytes(name, **options):
    content = io.BytesIO()
    image = drawn(size=(20, 16), mode="RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(content, name, **options, **({"exif": exif} if name in ("JPEG", "PNG", "WEBP", "TIFF") else {}))
    return content.getvalue()


IMAGES = {name: image_bytes(name) for name in ("PNG", "JPEG", "GIF", "BMP", "PPM", "WEBP", "TIFF")}


@pytest.mark.parametrize("name", IMAGES)
@OFTEN
@given(edits=EDITS)
def test_images(name, edits):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a" / "1.png"
        path.parent.mkdir()
        path.write_bytes(mutated(IMAGES[name], edits))
        examples = open_labelled(folder, (3, 16, 16))
        positions, x = everything(examples)
        assert len(positions) + len(examples.skipped) == 1
        assert x is None or x.shape == (1, 3, 16, 16)
        if positions:
            assert everything(open_labelled(folder))[0] == positions
        else:
            with pytest.raises(ValueError, match="none of its images can be read"):
                open_labelled(folder)


def check_table(content, ending, like=None):
    """Read a table both ways; what comes out is whole, or there is a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"wave{ending}"
        path.write_bytes(content)
        for read in (lambda: open_labelled(path), lambda: open_unlabelled([str(path)], like)):
            try:
                examples = read()
            except ValueError as error:
                text = str(error)
                assert text.startswith(folder)
                assert len(text) < 2000
                continue
            positions, x = everything(examples, 100)
            assert positions == list(range(len(examples)))
            assert x.shape == (len(examples), *examples.shape)
            assert not bool(x.isinf().any())
            assert not x.isnan().any() or examples.missing
            assert len(examples.names) == len(examples)
            assert examples.labels is None or (len(examples.labels) == len(examples) and all(examples.labels))


CSV = "width,height,label\n" + "".join(f'{number},{math.sin(number):.4f},"k, {number % 3}"\n' for number in range(20))


@OFTEN
@given(edits=EDITS)
def test_tables_as_text(edits):
    check_table(mutated(CSV.encode(), edits), ".csv", (2,))


@OFTEN
@given(text=st.text(alphabet='ab1.e-_,;\t"\n\r \x00\ufeffé', max_size=60))
def test_any_text(text):
    check_table(b"a,b,label\n" + text.encode(), ".csv", (2,))
    check_table(text.encode(), ".csv", (1,))


def arrays_bytes(save, **arrays):
    content = io.BytesIO()
    save(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@OFTEN
@given(edits=EDITS)
def test_arrays_of_images(save, edits):
    x = np.arange(4 * 9 * 9, dtype=np.uint8).reshape(4, 9, 9)
    content = arrays_bytes(save, x=x, y=np.array([0, 1, 0, 1]))
    check_table(mutated(content, edits), ".npz", (1, 9, 9))


@OFTEN
@given(edits=EDITS)
def test_arrays_whose_archive_is_whole(edits):
    """The archive's checksums would hide most damage to the arrays inside, so these are damaged before it is made."""
    import zipfile

    array = io.BytesIO()
    np.lib.format.write_array(array, np.linspace(0, 1, 24).reshape(6, 4))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x.npy", mutated(array.getvalue(), edits))
        labels = io.BytesIO()
        np.lib.format.write_array(labels, np.arange(6))
        archive.writestr("y.npy", labels.getvalue())
    check_table(content.getvalue(), ".npz", (4,))


@OFTEN
@given(edits=EDITS)
def test_parquet(edits):
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"u": [1.0, 2.0, 3.0], "v": ["4", "5", "x"], "label": ["a", "b", "a"]})
    content = io.BytesIO()
    files.write_table(table, content)
    check_table(mutated(content.getvalue(), edits), ".parquet", (2,))
