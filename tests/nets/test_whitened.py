"""Whitened patches: the fast form is the plain one, and any images make filters."""

import pytest
import torch
import torch.nn.functional as F

from ucb.nets.fixed_features import SOFTNESS, SPREAD, WhitenedPatches, _whitening


def looked(x, filters=10, size=5, cells=3):
    trunk = WhitenedPatches(x.shape[1], filters, size, cells)
    trunk.fit(x, torch.Generator().manual_seed(0))
    return trunk


def plain_answers(trunk, x):
    patches = F.unfold(x, trunk.size)
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.norm(dim=1, keepdim=True) + SOFTNESS)
    return torch.einsum("kd,ndp->nkp", trunk.filters.flatten(1), patches)


@pytest.mark.parametrize("shape", [(3, 20, 17), (1, 8, 8)])
def test_features_are_both_signs_of_the_answers_averaged_over_cells(shape):
    x = torch.rand(20, *shape)
    trunk = looked(x)
    sides = [side - trunk.size + 1 for side in shape[1:]]
    z = plain_answers(trunk, x).view(20, 10, *sides)
    expected = torch.cat([F.relu(z - 0.3), F.relu(-z - 0.3)], 1)
    expected = F.adaptive_avg_pool2d(expected, 3).flatten(1)
    found = trunk(x)
    assert found.shape == (20, trunk.features)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_whitening_makes_all_directions_alike_but_takes_out_the_mean():
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(5000, 9, generator=generator).double() @ torch.randn(9, 9, generator=generator).double()
    patches -= patches.mean(1, keepdim=True)
    whitening = _whitening(patches, 1e-9)
    torch.testing.assert_close(whitening, whitening.T)
    white = patches @ whitening
    values = torch.linalg.eigvalsh(white.T @ white / len(white))
    torch.testing.assert_close(values[1:], torch.ones(8, dtype=torch.float64), rtol=1e-3, atol=1e-3)
    assert abs(float(values[0])) < 1e-6


def test_answers_to_vivid_patches_have_a_known_spread():
    x = torch.rand(50, 1, 12, 12)
    answers = plain_answers(looked(x), x)
    assert float(answers.std()) == pytest.approx(SPREAD, rel=0.2)


@pytest.mark.parametrize("x", [torch.zeros(3, 1, 9, 9), torch.full((1, 3, 9, 9), 0.5), torch.rand(1, 1, 5, 5)])
def test_images_with_too_few_patches_or_none_still_make_filters(x):
    trunk = looked(x)
    assert bool(trunk.filters.isfinite().all())
    assert bool(trunk(x).isfinite().all())
    assert float(trunk.filters.flatten(1).norm(dim=1).min()) > 0


def test_one_batch_or_many_is_the_same():
    x = torch.rand(40, 1, 12, 12)
    trunk = looked(x)
    torch.testing.assert_close(trunk(x), torch.cat([trunk(x[:1]), trunk(x[1:])]))


def test_no_filter_is_a_patch():
    x = torch.rand(200, 1, 12, 12)
    trunk = looked(x, filters=100)
    patches = F.unfold(x, trunk.size).transpose(1, 2).flatten(0, 1).double()
    patches -= patches.mean(1, keepdim=True)
    patches /= patches.norm(dim=1, keepdim=True) + SOFTNESS
    whitening = _whitening(patches, trunk.floor)
    alone = F.normalize(F.normalize(patches @ whitening, dim=1) @ whitening, dim=1)
    filters = F.normalize(trunk.filters.flatten(1).double(), dim=1)
    assert float((filters @ alone.T).abs().max()) < 0.95
