"""Damaged data for `ucb learn`: what can be read is learnt, or a sentence says why not and the model is as it was."""

import io
import math
import random

import numpy as np
import pytest
from PIL import Image

from tests.incremental.data import blobs, digits
from tests.support import ask, sentence
from ucb.incremental import learn

pytestmark = pytest.mark.usefixtures("small")
NUMBER = 250
"""Of each of four kinds; the slow tests do four times as many, and others."""


def mutated(content, numbers):
    """Bytes changed, doubled, put in or cut off."""
    changed = bytearray(content)
    for _ in range(numbers.choice([1, 1, 2, 4, 12])):
        place, length = numbers.randrange(len(changed) + 1), numbers.choice([1, 1, 4, 30])
        deed = numbers.randrange(6)
        if deed == 0:
            changed[place : place + 1] = bytes([numbers.randrange(256)])
        elif deed == 1:
            changed[place : place + 1] = numbers.choice([b"\0", b"\xff", b",", b"\n", b'"', b"-", b"e", b"9", b" "])
        elif deed == 2:
            changed[place:place] = numbers.randbytes(length)
        elif deed == 3:
            changed[place:place] = changed[place : place + 2 * length]
        elif deed == 4:
            del changed[place : place + length]
        elif numbers.random() < 0.3:
            del changed[place:]
    return bytes(changed)


def csv_file(folder, numbers):
    rows = "".join(f"{n},{math.sin(n):.3f},{n % 5},class {n % 2}\n" for n in range(12))
    (folder / "wave.csv").write_bytes(mutated(f"u,v,w,label\n{rows}".encode(), numbers))
    return folder / "wave.csv"


def arrays_file(folder, numbers):
    """Half of them damaged inside the archive, whose checksums would give the damage away."""
    arrays = {"x": np.linspace(-1, 1, 36).reshape(12, 3), "y": np.array([f"class {n % 2}" for n in range(12)])}
    inside = numbers.random() < 0.5
    content = io.BytesIO()
    if inside:
        import zipfile

        with zipfile.ZipFile(content, "w") as archive:
            for name, array in arrays.items():
                one = io.BytesIO()
                np.lib.format.write_array(one, array)
                archive.writestr(f"{name}.npy", mutated(one.getvalue(), numbers))
    else:
        numbers.choice([np.savez, np.savez_compressed])(content, **arrays)
    (folder / "wave.npz").write_bytes(content.getvalue() if inside else mutated(content.getvalue(), numbers))
    return folder / "wave.npz"


def parquet_file(folder, numbers):
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: [float((n * step) % 7) for n in range(12)] for step, name in enumerate("uvw", 1)}
    content = io.BytesIO()
    files.write_table(arrow.table({**columns, "label": [f"class {n % 2}" for n in range(12)]}), content)
    (folder / "wave.parquet").write_bytes(mutated(content.getvalue(), numbers))
    return folder / "wave.parquet"


def png_folder(folder, numbers):
    """Four images of two classes, one or all of them damaged."""
    everything = numbers.random() < 0.3
    for number, (image, label) in enumerate(zip(*digits([0, 1], 2), strict=True)):
        content = io.BytesIO()
        Image.fromarray(image[0].numpy()).save(content, "PNG")
        place = folder / "wave" / label / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        damaged = everything or number == 1
        place.write_bytes(mutated(content.getvalue(), numbers) if damaged else content.getvalue())
    return folder / "wave"


KINDS = {"csv": csv_file, "npz": arrays_file, "parquet": parquet_file, "png": png_folder}


def check(folder, kind, times, seed):
    """Learn damaged data into the same model again and again; return how often that could be done."""
    path, learnt, numbers = folder / "m.ucb", 0, random.Random(seed)
    x, labels = digits([0, 1], 6) if kind == "png" else blobs(["class 0", "class 1"], 6, columns=3)
    learn(path, (x, labels))
    before = path.read_bytes()
    for number in range(times):
        answer = ask("learn", path, KINDS[kind](folder, numbers))
        if answer.code == 0:
            learnt += 1
            assert "the data are no longer needed" in answer.out, (number, answer)
            path.write_bytes(before)
        else:
            sentence(answer, 1, 2)
            assert path.read_bytes() == before, (number, answer)
    left = {each.name for each in folder.iterdir()}
    assert left <= {"m.ucb", "wave", f"wave.{kind}"}
    return learnt


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_damaged_waves(tmp_path, kind):
    assert 0 < check(tmp_path, kind, NUMBER, seed=0) < NUMBER


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_four_thousand_damaged_waves(tmp_path, kind):
    assert 0 < check(tmp_path, kind, 4 * NUMBER, seed=1) < 4 * NUMBER
