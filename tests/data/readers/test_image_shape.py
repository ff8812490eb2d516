"""The shape that the first wave settles."""

import numpy as np
import pytest
from PIL import Image

from ucb.data.readers import open_labelled
from ucb.data.readers.images import SAMPLE, sample

from .files import drawn, everything, write


def shape(tmp_path, *images):
    for number, image in enumerate(images):
        write(tmp_path / "a" / f"{number:03}.png", image)
    return open_labelled(tmp_path).shape


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(28, 28)], (28, 28)),
        ([(28, 20), (28, 20), (64, 64)], (20, 28)),
        ([(64, 64), (64, 64), (65, 10)], (64, 64)),
        ([(65, 10)], (64, 64)),
        ([(300, 200), (400, 200), (500, 300), (16, 16), (16, 16)], (64, 64)),
        ([(4, 30)], (30, 8)),
        ([(1, 1)], (8, 8)),
        ([(20, 20), (30, 30)], (30, 30)),
    ],
)
def test_size(tmp_path, sizes, expected):
    assert shape(tmp_path, *(drawn(size=size) for size in sizes))[1:] == expected


def test_colour_is_what_is_seen_not_how_it_is_stored(tmp_path):
    stored_in_colour = drawn().convert("RGB")
    assert shape(tmp_path, drawn(), stored_in_colour, drawn().convert("RGBA"))[0] == 1
    nearly = np.array(stored_in_colour)
    nearly[3, 4, 2] ^= 1
    assert shape(tmp_path, drawn(), Image.fromarray(nearly))[0] == 3


def test_the_sample_is_spread_over_all():
    assert list(sample(3)) == [0, 1, 2]
    chosen = list(sample(10_001))
    assert len(set(chosen)) == SAMPLE
    assert (chosen[0], chosen[-1]) == (0, 10_000)


def test_a_given_shape_is_kept(tmp_path):
    write(tmp_path / "a" / "1.png", drawn(mode="RGB"))
    examples = open_labelled(tmp_path, (1, 9, 11))
    assert examples.shape == (1, 9, 11)
    assert everything(examples)[1].shape == (1, 1, 9, 11)
