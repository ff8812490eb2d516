"""The compiled loops against their PyTorch forms, and their noise against the normal distribution."""

import math
import os
import subprocess
import sys

import pytest
import torch

from ucb import kernels
from ucb.kernels import cpu

needs_compiler = pytest.mark.skipif(cpu.load_library() is None, reason=kernels.status())
SIZES = [1, 7, 255, 256, 257, 1000, 70_001, 300_007]


def draw(size, seed=0, mean=0.0, sigma=1.0):
    eps, w = torch.full((size,), math.nan), torch.full((size,), math.nan)
    generator = torch.Generator().manual_seed(seed)
    kernels.draw(torch.full((size,), mean), torch.full((size,), sigma), eps, w, generator)
    return eps, w


@pytest.fixture(params=[pytest.param("compiled", marks=needs_compiler), "pytorch"])
def form(request, monkeypatch):
    if request.param == "pytorch":
        monkeypatch.setattr(kernels, "load_library", lambda: None)
    return request.param


@pytest.mark.parametrize("size", SIZES)
def test_every_element_is_drawn(form, size):
    eps, w = draw(size, mean=3.0, sigma=0.5)
    assert eps.isfinite().all()
    torch.testing.assert_close(w, 3 + 0.5 * eps)


def test_noise_is_standard_normal(form):
    """Four moments, the distribution function, the tails, and no correlation between neighbours near or far."""
    n = 4_000_000
    eps = draw(n)[0].double()
    for power, expected, spread in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(float((eps**power).mean()) - expected) < 4.5 * math.sqrt(spread / n)
    ordered = torch.special.ndtr(eps.sort().values)
    gap = (ordered - (torch.arange(n) + 0.5) / n).abs().max()
    assert float(gap) * math.sqrt(n) < 1.95  # Kolmogorov and Smirnov, at one in a thousand
    beyond = float((eps.abs() > 4).double().sum())
    assert abs(beyond - n * 6.334e-5) < 4.5 * math.sqrt(n * 6.334e-5)
    for lag in (1, 2, 63, 64, 65, 128, 192, 256, 1024):
        assert abs(float((eps[:-lag] * eps[lag:]).mean())) < 4.5 / math.sqrt(n)


def test_the_same_seed_repeats_and_another_differs(form):
    assert torch.equal(draw(5000, 1)[0], draw(5000, 1)[0])
    first, second = draw(5000, 1)[0], draw(5000, 2)[0]
    assert abs(float((first * second).mean())) < 0.06


def test_successive_draws_from_one_generator_are_independent(form):
    generator = torch.Generator().manual_seed(0)
    draws = []
    for _ in range(2):
        eps = torch.empty(200_000)
        kernels.draw(torch.zeros_like(eps), torch.ones_like(eps), eps, torch.empty_like(eps), generator)
        draws.append(eps)
    assert abs(float((draws[0] * draws[1]).mean())) < 0.01


@needs_compiler
def test_philox_gives_the_published_numbers():
    """Known answers of Philox 4x32-10 (its authors' test vectors): counter 0 with key 0."""
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    mean, sigma, noise, w = torch.zeros(256), torch.ones(256), torch.empty(256), torch.empty(256)
    cpu.load_library().ucb_draw(*(t.data_ptr() for t in (mean, sigma, noise, w)), 0, 256, 0)
    for pair in (0, 1):
        radius = math.sqrt(-2 * math.log(((words[2 * pair] >> 1) + 0.5) / 2**31))
        signed = words[2 * pair + 1] - (1 << 32 if words[2 * pair + 1] >> 31 else 0)
        angle = 2 * math.pi * (signed >> 8) / 2**24
        assert float(noise[128 * pair]) == pytest.approx(radius * math.cos(angle), abs=1e-5)
        assert float(noise[128 * pair + 64]) == pytest.approx(radius * math.sin(angle), abs=1e-5)


@needs_compiler
def test_threads_do_not_change_the_numbers():
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            eps, w = draw(1_000_003, mean=1.0)
            grad = torch.zeros_like(w)
            total = kernels.add_mixture_score(w, grad, -0.5, 6.0, -100.0, 0.1)
            results.append((eps, w, grad, total))
    finally:
        torch.set_num_threads(before)
    for eps, w, grad, total in results[1:]:
        assert torch.equal(eps, results[0][0])
        assert torch.equal(w, results[0][1])
        assert torch.equal(grad, results[0][2])
        torch.testing.assert_close(total, results[0][3])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("k", "b", "c"), [(-0.5, 6.0, -8e4), (-0.5, 0.0, -0.1), (-50.0, -3.0, 0.0), (-0.5, 100.0, -9.0)]
)
def test_mixture_score_is_the_definition(form, size, k, b, c):
    w = torch.randn(size) * torch.logspace(-3, 2, size)
    grad = torch.randn(size)
    before = grad.clone()
    exact = w.double().requires_grad_()
    f = (k * exact**2 + torch.nn.functional.softplus(b + c * exact**2)).sum()
    f.backward()
    total = kernels.add_mixture_score(w, grad, k, b, c, 0.01)
    torch.testing.assert_close(total.double(), f.detach(), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(grad.double(), before.double() + 0.01 * exact.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_accumulate(form, size):
    grad, eps, by_mean, by_sigma = torch.randn(4, size).unbind()
    expected = by_mean + grad, by_sigma + grad * eps
    kernels.accumulate(grad, eps, by_mean, by_sigma)
    torch.testing.assert_close((by_mean, by_sigma), expected)


def test_a_nan_is_never_swallowed(form):
    w = torch.tensor([1.0, math.nan, 2.0])
    grad = torch.zeros(3)
    total = kernels.add_mixture_score(w, grad, -0.5, 6.0, -100.0, 1.0)
    assert total.isnan()
    assert grad.isnan().tolist() == [False, True, False]
    by_mean, by_sigma = torch.zeros(2, 3).unbind()
    kernels.accumulate(w, torch.ones(3), by_mean, by_sigma)
    assert by_mean.isnan().tolist() == by_sigma.isnan().tolist() == [False, True, False]


def test_other_dtypes_and_strides_are_served(form):
    for dtype, transpose in ((torch.float64, False), (torch.float32, True)):
        mean, sigma, eps, w = (torch.ones(30, 20, dtype=dtype) for _ in range(4))
        if transpose:
            mean, sigma = mean.T.contiguous().T, sigma.T.contiguous().T
        kernels.draw(mean, sigma, eps, w, None)
        torch.testing.assert_close(w, 1 + eps)


def test_sums(form):
    x = torch.rand(200_001) + 0.1
    torch.testing.assert_close(kernels.sum_log(x).double(), x.double().log().sum(), rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(kernels.sum_squares(x).double(), x.double().square().sum(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"UCB_KERNELS": "off"}, "UCB_KERNELS=off"),
        ({"CC": "no-such-compiler"}, "no C compiler"),
        ({"CC": "false"}, "could not build"),
        ({}, ""),
    ],
)
def test_without_a_compiler_pytorch_does_the_work(tmp_path, variables, said):
    """In a process of its own: a training step gives finite gradients, and the status says why there are no kernels."""
    program = (
        "import torch; from torch import nn; from ucb.bayes import *; from ucb import kernels\n"
        "net = to_bayesian(nn.Linear(4, 3))\n"
        "ELBO(9, samples=3).backward(net, torch.randn(5, 4), torch.zeros(5, dtype=torch.long))\n"
        "assert all(p.grad.isfinite().all() for p in net.parameters())\n"
        "print(kernels.status())"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), **variables}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said in out.stdout
