"""The kernels of group normalisation against PyTorch and autograd: on a GPU, else in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.bayes.triton_tests import DEVICE, MARKS, ON_GPU
from ucb.bayes import BayesGroupNorm, to_bayesian
from ucb.bayes.passes import Pass, run
from ucb.kernels.triton import group_norm as kernels
from ucb.kernels.triton.group_norm import group_norm

pytestmark = MARKS


EPS = 1e-5
# rows, channels, groups, height, width, samples
SHAPES = [
    (4, 4, 4, 3, 5, 2),  # one channel in a group
    (10, 6, 2, 3, 5, 5),  # three
    (2, 16, 2, 8, 8, 1),
    (4, 32, 2, 3, 5, 2),
    (2, 16, 1, 1, 1, 2),
    (3, 9, 3, 1, 1, 1),
    (5, 3, 1, 8, 8, 5),
]
TILES = [8192, 32]  # a group in one tile, and in several, the last of them not always full


def pixels(rows, channels, height, width):
    """Random rows in memory by pixel, each channel with a level and a spread of its own."""
    spread, level = torch.rand(channels, device=DEVICE) + 0.5, torch.randn(channels, device=DEVICE)
    x = torch.randn(rows, height, width, channels, device=DEVICE) * spread + level
    return x.permute(0, 3, 1, 2)


def scales(samples, channels):
    return torch.randn(2, samples, channels, device=DEVICE).unbind()


def expected(x, groups, eps, weight=None, bias=None):
    """The same by PyTorch, whose own form for channels_last, on a CPU, loses digits where the mean is far from 0."""
    y = F.group_norm(x.contiguous(), groups, eps=eps)
    if weight is not None:
        y = y * weight.repeat(len(x) // len(weight), 1)[:, :, None, None]
    if bias is not None:
        y = y + bias.repeat(len(x) // len(bias), 1)[:, :, None, None]
    return y


def close(actual, wanted, rtol=2e-5, atol=2e-5):
    torch.testing.assert_close(actual.double(), wanted.double(), rtol=rtol, atol=atol)


def both(x, groups, weight=None, bias=None):
    """Return output and gradients of the kernels, and those of PyTorch in double precision."""
    factors = torch.randn_like(x)
    found = []
    for dtype, normalise in ((torch.float32, group_norm), (torch.float64, expected)):
        given = [None if t is None else t.detach().to(dtype).requires_grad_() for t in (x, weight, bias)]
        y = normalise(given[0], groups, EPS, *given[1:])
        present = [t for t in given if t is not None]
        found.append([y.detach(), *torch.autograd.grad((y * factors).sum(), present)])
    return found


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradients_are_those_of_pytorch(shape, tile, monkeypatch):
    monkeypatch.setattr(kernels, "TILE", tile)
    rows, channels, groups, height, width, samples = shape
    x = pixels(rows, channels, height, width)
    found, wanted = both(x, groups, *scales(samples, channels))
    for a, b in zip(found, wanted, strict=True):
        close(a, b)
    for by_pixel in found[:2]:
        assert by_pixel.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("tile", TILES)
def test_bfloat16_in_gives_bfloat16_out_and_all_sums_in_single_precision(tile, monkeypatch):
    monkeypatch.setattr(kernels, "TILE", tile)
    x, scaling = pixels(4, 32, 3, 5).bfloat16(), scales(2, 32)
    factors = torch.randn(x.shape, device=DEVICE).bfloat16()
    found = []
    for normalise, dtypes in (group_norm, (torch.bfloat16, torch.float32)), (expected, (torch.float64,) * 2):
        given = [t.to(dtypes[i > 0]).requires_grad_() for i, t in enumerate((x, *scaling))]
        y = normalise(given[0], 2, EPS, *given[1:])
        found.append([y.detach(), *torch.autograd.grad(y, given, factors.to(y.dtype))])
    (y, by_x, by_weight, by_bias), wanted = found
    assert y.dtype == by_x.dtype == torch.bfloat16
    assert by_weight.dtype == by_bias.dtype == torch.float32
    for a, b in zip(found[0], wanted, strict=True):
        # The interpreter cuts what bfloat16 has no digits for, where a GPU rounds.
        close(a, b, *[2**-7 if a.dtype == torch.bfloat16 else 1e-4] * 2)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("has_weight", "has_bias"), [(False, False), (True, False), (False, True)])
def test_weight_and_bias_may_be_absent(has_weight, has_bias, tile, monkeypatch):
    monkeypatch.setattr(kernels, "TILE", tile)
    weight, bias = scales(2, 6)
    found, wanted = both(pixels(4, 6, 3, 5), 2, weight if has_weight else None, bias if has_bias else None)
    for a, b in zip(found, wanted, strict=True):
        close(a, b)


def test_rows_take_the_samples_in_turn():
    shift = torch.arange(6.0, device=DEVICE).view(3, 2)
    y = group_norm(torch.ones(6, 4, 4, 2, device=DEVICE).permute(0, 3, 1, 2), 1, EPS, None, shift)
    assert torch.equal(y[:, :, 2, 1], torch.cat([shift, shift]))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("offset", [1000.0, -1e6])
def test_a_far_mean_costs_no_digits(offset, tile, monkeypatch):
    """What rounding leaves of x is normalised as exactly as values around 0: the tolerance, 2e-5, is the same."""
    monkeypatch.setattr(kernels, "TILE", tile)
    x = 3 * pixels(2, 8, 8, 8) + offset
    found, wanted = both(x, 2, *scales(2, 8))
    for a, b in zip(found, wanted, strict=True):
        close(a, b)


@pytest.mark.parametrize("tile", TILES)
def test_a_first_value_far_from_all_others_does_little_harm(tile, monkeypatch):
    monkeypatch.setattr(kernels, "TILE", tile)
    x = pixels(2, 8, 8, 8)
    x[:, ::4, 0, 0] = 1e4
    found, wanted = both(x, 2, *scales(2, 8))
    for a, b in zip(found, wanted, strict=True):
        close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tile", TILES)
def test_constant_groups_have_no_nan(tile, monkeypatch):
    monkeypatch.setattr(kernels, "TILE", tile)
    weight, bias = scales(2, 6)
    level = torch.tensor([0.0, 0.1, -777.7, 3e7], device=DEVICE)
    x = level.view(4, 1, 1, 1).expand(4, 6, 3, 5).contiguous(memory_format=torch.channels_last)
    (y, by_x, by_weight, by_bias), wanted = both(x, 2, weight, bias)
    assert torch.equal(y, bias.repeat(2, 1)[:, :, None, None].expand_as(y))
    assert (by_weight == 0).all()
    # rstd is 1 / sqrt(eps) there, some 300, and the rounding errors of g grow with it
    close(by_x, wanted[1], atol=1e-3)
    close(by_bias, wanted[3])


def test_a_nan_stays_in_its_group():
    x = pixels(2, 4, 3, 3)
    x[0, 3, 1, 1] = torch.nan
    found = group_norm(x, 2, EPS).isnan()
    assert found[0, 2:].all()
    assert found.sum() == 2 * 9


def test_gradients_come_from_any_layout_and_only_where_they_are_wanted():
    x = pixels(4, 6, 3, 5)
    weight, bias = scales(2, 6)
    factors = torch.randn(4, 6, 3, 5, device=DEVICE)  # as this is, so is the gradient by y
    for wanted in ([True, False, False], [False, True, False], [False, False, True]):
        given = [t.clone().requires_grad_(w) for t, w in zip((x, weight, bias), wanted, strict=True)]
        exact = [t.detach().double().requires_grad_(t.requires_grad) for t in given]
        (group_norm(given[0], 2, EPS, *given[1:]) * factors).sum().backward()
        (expected(exact[0], 2, EPS, *exact[1:]) * factors).sum().backward()
        for a, b in zip(given, exact, strict=True):
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                close(a.grad, b.grad)
    y = group_norm(x.requires_grad_(), 2, EPS, weight, bias)
    (grad,) = torch.autograd.grad(y.sum(), x)  # its gradient by y is one number in memory
    close(grad, torch.autograd.grad(expected(x.double(), 2, EPS, weight.double(), bias.double()).sum(), x)[0])


def test_a_second_derivative_is_refused():
    x = pixels(2, 4, 3, 3).requires_grad_()
    (grad,) = torch.autograd.grad(group_norm(x, 2, EPS).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


# --- who is served


def test_what_the_kernels_cannot_do_is_refused_and_not_served(monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda _: True)
    x, (weight, bias) = pixels(4, 6, 3, 5), scales(2, 6)
    assert kernels.supports(x, 2, weight, bias)
    assert kernels.supports(x, 2, None, None)
    monkeypatch.setattr(kernels, "TILE", 2)
    refused = [
        (x.double(), 2, weight, bias),
        (x.contiguous(), 2, weight, bias),
        (x[0], 2, weight, bias),
        (x[:0], 2, weight, bias),
        (x[:, :, :, ::2], 2, weight, bias),
        (x, 4, weight, bias),
        (x, 0, weight, bias),
        (x, 2, weight, bias),  # three channels in tiles of two
        (x[:3], 6, weight, bias),
        (x, 6, weight.double(), None),
        (x, 6, weight, bias[:1]),
        (x, 6, None, bias[:, :3]),
        (x, 6, weight[0], None),
        (x, 6, torch.randn(6, 2, device=DEVICE).t(), None),
    ]
    for case in refused:
        assert not kernels.supports(*case)
        with pytest.raises(ValueError, match=r"must be|do not make|cannot use"):
            group_norm(case[0], case[1], EPS, *case[2:])


def test_a_cpu_is_left_to_pytorch():
    x = pixels(4, 6, 3, 5).cpu()
    assert not kernels.supports(x, 2, None, None)


def test_kernels_can_be_switched_off(monkeypatch):
    x = pixels(4, 6, 3, 5)
    assert kernels.supports(x, 2, None, None) == ON_GPU
    monkeypatch.setenv("UCB_KERNELS", "off")
    assert not kernels.supports(x, 2, None, None)


# --- the layer


def layer_and_pass(affine, samples):
    layer = BayesGroupNorm(None, None, groups=2)
    if affine:
        plain = nn.GroupNorm(2, 6)
        for parameter in plain.parameters():
            nn.init.normal_(parameter)
        layer = to_bayesian(plain, init_std_ratio=0.7)
    return layer.to(DEVICE), Pass("weights", 2, samples)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("samples", [2, 5])
def test_the_layer_is_the_same_with_the_kernels(samples, affine, monkeypatch):
    layer, p = layer_and_pass(affine, samples)
    x = pixels(2 * samples, 6, 3, 5)
    factors = torch.randn(samples, 2, 6, 3, 5, device=DEVICE)
    uses = []
    monkeypatch.setattr(kernels, "group_norm", lambda *args: uses.append(1) or group_norm(*args))
    found = []
    for fused in (False, True):
        monkeypatch.setattr(kernels, "available", lambda _, fused=fused: fused)
        given = x.clone().requires_grad_()
        y = run(layer, given, p)  # the second time with what was drawn the first
        parameters = [given, *layer.parameters()]
        found.append([y.detach(), *torch.autograd.grad((y * factors).sum(), parameters, retain_graph=True)])
        assert len(uses) == fused
    for a, b in zip(*found, strict=True):
        close(a, b)


def test_rows_that_all_samples_share_and_other_layouts_are_the_same_too(monkeypatch):
    layer, p = layer_and_pass(True, 3)
    x = pixels(2, 6, 3, 5)
    monkeypatch.setattr(kernels, "available", lambda _: False)
    wanted = run(layer, x, p)
    monkeypatch.setattr(kernels, "available", lambda _: True)
    for given in (x, x.contiguous(), x.repeat_interleave(3, 0)):
        close(run(layer, given, p), wanted)


@pytest.mark.gpu
def test_a_recorded_graph_follows_its_inputs():
    x, (weight, bias) = pixels(20, 16, 8, 8), scales(5, 16)
    given = [t.requires_grad_() for t in (x, weight, bias)]

    def step():
        y = group_norm(x, 4, EPS, weight, bias)
        return y.detach(), *torch.autograd.grad(y.square().sum(), given)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()  # compiles, which a recording cannot
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    for _ in range(2):
        with torch.no_grad():
            for t in given:
                t.normal_()
        graph.replay()
        for a, b in zip(recorded, step(), strict=True):
            assert torch.equal(a, b)
