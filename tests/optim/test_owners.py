import math

import pytest
import torch

from ucb.optim.importance import Owners, pack, unpack


@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 4, 7, 8, 20, 255])
def test_packing_takes_the_fewest_bits_and_comes_back(tasks):
    bits = math.ceil(math.log2(tasks + 1))
    assert bits == tasks.bit_length()
    for number in (0, 1, 7, 8, 9, 1003):
        values = torch.randint(tasks + 1, (number,), dtype=torch.uint8)
        packed = pack(values, bits)
        assert packed.dtype == torch.uint8
        assert len(packed) == math.ceil(number * bits / 8)
        assert torch.equal(unpack(packed, bits, number), values)


def test_indices_lie_in_the_bytes_one_after_the_other():
    assert pack(torch.tensor([1, 2, 3, 0, 2], dtype=torch.uint8), 2).tolist() == [0b00_11_10_01, 0b10]


def test_claims_masks_and_state():
    weights = {"a": torch.zeros(5, 3), "b": torch.zeros(7)}
    owners = Owners(weights)
    first, second = ({name: torch.rand_like(w) > 0.5 for name, w in weights.items()} for _ in range(2))
    owners.claim(first, 1)
    assert owners.state_dict()["packed"].numel() == math.ceil(22 / 8)
    second = {name: mask & ~first[name] for name, mask in second.items()}
    owners.claim(second, 2)
    other = Owners(weights)
    other.load_state_dict(owners.state_dict())
    assert other.tasks == 2
    for name in weights:
        assert torch.equal(other.used_by(name, 1), first[name])
        assert torch.equal(other.used_by(name, 2), first[name] | second[name])
        assert torch.equal(other.free(name), ~(first[name] | second[name]))


def test_what_is_owned_cannot_be_claimed_again_and_nothing_is_half_done():
    owners = Owners({"a": torch.zeros(4), "b": torch.zeros(4)})
    owners.claim({"b": torch.tensor([True, False, False, False])}, 1)
    everything = torch.ones(4, dtype=torch.bool)
    with pytest.raises(ValueError, match="task 2 claims weights of b that belong to an earlier task"):
        owners.claim({"a": everything, "b": everything}, 2)
    assert owners.free("a").all()
    assert owners.tasks == 1


def test_there_is_a_last_task():
    owners = Owners({"a": torch.zeros(4)})
    with pytest.raises(ValueError, match="255 tasks, and this is task 256"):
        owners.claim({"a": torch.ones(4, dtype=torch.bool)}, 256)
    with pytest.raises(ValueError, match="must be at least 1"):
        owners.claim({"a": torch.ones(4, dtype=torch.bool)}, 0)
