"""Right answers as bits, and back."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ucb.metrics import pack_right_answers, unpack_right_answers


@given(st.lists(st.booleans(), max_size=70))
def test_what_was_packed_comes_back_through_json(values):
    right = torch.tensor(values, dtype=torch.bool)
    packed = json.loads(json.dumps(pack_right_answers(right)))
    assert torch.equal(unpack_right_answers(packed), right)


def test_an_example_takes_a_bit():
    packed = pack_right_answers(torch.ones(10_000, dtype=torch.bool))
    assert len(json.dumps(packed)) < 10_000 / 8 * 4 / 3 + 60


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        ({"count": 9, "bits": "/w=="}, "9 right answers need 2 bytes, and there are 1"),
        ({"count": 8, "bits": "/w==/w=="}, "no base64"),
        ({"count": 8, "bits": None}, "no base64"),
        ({"count": -1, "bits": ""}, "count must be at least 0"),
    ],
)
def test_damaged_bits_are_refused(packed, expected):
    with pytest.raises(ValueError, match=expected):
        unpack_right_answers(packed)


def test_only_truth_values_are_packed():
    with pytest.raises(TypeError, match="one row of truth values"):
        pack_right_answers(torch.ones(3))
