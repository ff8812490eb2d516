"""What the tests of the fused kernels have in common: weights of all sizes, and their noise."""

import torch

from tests.bayes.triton_tests import DEVICE
from ucb.bayes import ScaleMixture
from ucb.kernels import inverse_softplus
from ucb.kernels.triton import fused

SHAPES = [(3, 5, 2), (512,), (41, 17)]  # less than a block, one block, one and a bit
SAMPLES = [1, 2, 4, 5, 10]
CASES = [(shape, samples, shape == SHAPES[-1] and samples != 4) for shape in SHAPES for samples in SAMPLES]
MIXTURE = ScaleMixture(0.25, 1.0, 0.05)
KBC = (MIXTURE.k, MIXTURE.b, MIXTURE.c)
NEW = (False, False)
"""Gradients that are added to nothing."""


def seed(value=1234):
    return torch.tensor([value], device=DEVICE)


def normal(*shape):
    return torch.randn(shape, device=DEVICE)


def noise(shape, samples, key=None, salt=3):
    """What the kernels draw, seen through weights of mean 0 and spread 1."""
    rho = inverse_softplus(torch.ones(shape, device=DEVICE, dtype=torch.float64)).float()
    return fused.sample(torch.zeros(shape, device=DEVICE), rho, None, seed() if key is None else key, salt, samples)


def weights(shape, pruned=False):
    """Means and spreads of all sizes, and a mask."""
    return normal(*shape), 3 * normal(*shape) - 2, (torch.rand(shape, device=DEVICE) < 0.6) if pruned else None


def close(actual, expected, rtol=2e-5, atol=2e-5):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=rtol, atol=atol)
