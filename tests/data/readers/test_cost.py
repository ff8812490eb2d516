"""What reading costs: files are opened when they are asked for, and quickly."""

import builtins
import time
import tracemalloc
from functools import partial

import pytest
import torch

from tests.incremental.costs import LINEAR, growth
from ucb.data.readers import fingerprint, open_labelled
from ucb.data.readers.images import SAMPLE
from ucb.data.readers.tables import choose

from .files import drawn, write


@pytest.fixture
def opened(monkeypatch):
    """Count the images that are opened."""
    names = []
    ours = builtins.open

    def counting(file, *arguments, **options):
        if str(file).endswith(".png"):
            names.append(str(file))
        return ours(file, *arguments, **options)

    monkeypatch.setattr(builtins, "open", counting)
    return names


def test_files_are_opened_when_they_are_asked_for(tmp_path, opened):
    for number in range(SAMPLE + 50):
        write(tmp_path / "a" / f"{number}.png", drawn(number, (8, 8)))
    opened.clear()
    examples = open_labelled(tmp_path)
    assert len(opened) == SAMPLE
    opened.clear()
    open_labelled(tmp_path, examples.shape)
    fingerprint(examples)
    assert opened == []
    batches = examples.batches(torch.arange(len(examples)), 16)
    next(batches)
    assert len(opened) == 16
    batches.close()


def test_a_long_table_is_kept_as_numbers(tmp_path):
    """40,000 rows of 20 numbers are 3.2 MB in single precision; as texts of Python they would be 50 MB."""
    path = tmp_path / "long.csv"
    row = ",".join(["0.12345"] * 20) + ",a\n"
    path.write_text(",".join([*(f"f{column}" for column in range(20)), "label"]) + "\n" + row * 40_000)
    tracemalloc.start()
    examples = open_labelled(path)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(examples) == 40_000
    assert kept < 6e6


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_columns_are_chosen_in_time_in_proportion_to_their_number(labels, known):
    """Of a wide table, whether it is the first or a model's columns are looked for among others."""

    def prepared(size):
        names = [f"f{number}" for number in range(size)]
        header = ["label", *names, *(f"other {number}" for number in range(size if known else 0))]
        columns, shape = (names[::-1], (size,)) if known else (None, None)
        call = partial(choose, "table", header, with_labels=labels, columns=columns, like=shape)
        assert len(call().positions) == (size if known or labels else size + 1)
        return call

    assert growth(prepared, 2500) < LINEAR


@pytest.mark.slow
def test_ten_thousand_small_images_take_seconds(tmp_path):
    for number in range(10_000):
        write(tmp_path / str(number % 10) / f"{number}.png", drawn(number % 100, (28, 28)))
    start = time.perf_counter()
    examples = open_labelled(tmp_path)
    read = sum(len(x) for _, x in examples.batches(torch.arange(len(examples)), 512))
    assert read == 10_000
    assert time.perf_counter() - start < 10
