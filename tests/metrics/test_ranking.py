"""AUROC from its definition: all pairs, one by one."""

import math

import pytest
import torch

from ucb.metrics import auroc


@pytest.mark.parametrize("levels", [3, 1_000_000])
def test_it_is_the_share_of_pairs_that_are_in_order_and_half_of_the_equal_ones(levels):
    generator = torch.Generator().manual_seed(0)
    inside = torch.randint(levels, (40,), generator=generator).float()
    outside = torch.randint(levels, (70,), generator=generator).float() + levels // 4
    pairs = [(a < b) + (a == b) / 2 for a in inside.tolist() for b in outside.tolist()]
    assert auroc(inside, outside) == pytest.approx(sum(pairs) / len(pairs))
    assert auroc(outside, inside) == pytest.approx(1 - sum(pairs) / len(pairs))


def test_values_that_tell_nothing_give_a_half_whatever_their_order():
    assert auroc(torch.zeros(5), torch.zeros(9)) == 0.5
    assert auroc(torch.zeros(5), torch.ones(9)) == 1


def test_one_kind_alone_is_refused():
    with pytest.raises(ValueError, match="both kinds"):
        auroc(torch.zeros(0), torch.ones(3))


def test_what_is_not_a_number_has_no_rank():
    """Sorting puts NaN last: a score that failed would count as the surest sign of all."""
    sound = torch.tensor([0.1, 0.5, math.inf, -math.inf])
    assert 0 <= auroc(sound, sound.flip(0)) <= 1
    spoilt = torch.tensor([0.1, math.nan])
    with pytest.raises(ValueError, match="values from inside hold NaN"):
        auroc(spoilt, sound)
    with pytest.raises(ValueError, match="values from outside hold NaN"):
        auroc(sound, spoilt)
