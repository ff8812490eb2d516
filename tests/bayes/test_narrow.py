"""The narrow linear layer against PyTorch and autograd: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.bayes.triton_tests import DEVICE, MARKS, ON_GPU
from ucb.bayes import to_bayesian
from ucb.bayes.passes import Pass, active
from ucb.bayes.posterior import Gaussian
from ucb.kernels.triton import fused, launch, narrow

pytestmark = MARKS


SALT = 3
SIZES = [
    (1, 1, 1),  # rows, inputs, outputs
    (16, 128, 10),  # one block of each
    (37, 150, 2),
    (16, 300, 10),
    (33, 129, 20),
    (20, 70, 64),
    (300, 40, 10),  # several chunks of rows, the last one not full
]
PLAIN, WITH_BIAS, PRUNED = (False, False), (True, False), (True, True)


@pytest.fixture(autouse=True)
def _precision():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def seed(value=1234):
    return torch.tensor([value], device=DEVICE)


def surrounded(values):
    """The same numbers, with NaN on both sides of them in memory: whoever reads too far shows it."""
    room = torch.full((values.numel() + 2048,), torch.nan, device=DEVICE)
    inner = room[1024 : 1024 + values.numel()].view(values.shape)
    inner.copy_(values)
    return inner


def gaussian(*shape, pruned=False):
    """Means and spreads of all sizes, and a mask."""
    g = Gaussian(torch.zeros(shape, device=DEVICE), 1.0)
    g.mu.data = surrounded(torch.randn(shape))
    g.rho.data = surrounded(3 * torch.randn(shape) - 2)
    if pruned:
        g.prune(torch.rand(shape, device=DEVICE) < 0.6)
    return g


def layer(inputs, outputs, kind=WITH_BIAS):
    has_bias, pruned = kind
    weight = gaussian(outputs, inputs, pruned=pruned)
    return weight, gaussian(outputs, pruned=pruned) if has_bias else None


def parameters(weight, bias):
    return [p for g in (weight, bias) if g is not None for p in (g.mu, g.rho)]


def noise(rows, outputs, key=None):
    """What the rule of ``fused`` gives to sample 0 of [rows, outputs]."""
    zeros = torch.zeros(rows, outputs, device=DEVICE)
    return fused.local_noise(zeros, torch.ones_like(zeros), seed() if key is None else key, SALT, 1)


def exact(x, weight, bias, eps):
    """The layer in double precision; return the output and what can be differentiated, in the order of autograd's."""
    leaves = [x.detach().double().requires_grad_()]
    mean = variance = 0
    for g, values in ((weight, leaves[0]), (bias, None)):
        if g is None:
            continue
        mu, rho = g.mu.detach().double().requires_grad_(), g.rho.detach().double().requires_grad_()
        leaves += [mu, rho]
        kept = 1.0 if g.keep is None else g.keep.double()
        m, v = mu * kept, F.softplus(rho).square() * kept
        mean = mean + (m if values is None else values @ m.T)
        variance = variance + (v if values is None else values.square() @ v.T)
    some = variance > 0
    return mean + variance.where(some, 1).sqrt() * some * eps.double(), leaves


def close(actual, expected, rtol=2e-5):
    """Compare relative to the largest entry: sums lose digits where their terms cancel."""
    expected = expected.detach().double()
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=rtol * float(expected.abs().max()) + 1e-12)


def compare(rows, inputs, outputs, kind, rtol=2e-5):
    weight, bias = layer(inputs, outputs, kind)
    x = surrounded(torch.randn(rows, inputs)).requires_grad_()
    factors = torch.randn(rows, outputs, device=DEVICE)
    y = narrow.narrow_linear(x, weight, bias, seed(), SALT)
    found = torch.autograd.grad((y * factors).sum(), [x, *parameters(weight, bias)])
    expected, leaves = exact(x, weight, bias, noise(rows, outputs))
    wanted = torch.autograd.grad((expected * factors).sum(), leaves)
    assert y.shape == (rows, outputs)
    close(y, expected, rtol)
    for actual, right in zip(found, wanted, strict=True):
        assert actual.shape == right.shape
        close(actual, right, rtol)
    for g, by_mu, by_rho in ((weight, *found[1:3]), (bias, *found[3:])) if kind[0] else ():
        if g.keep is not None:
            assert (by_mu[~g.keep] == 0).all()
            assert (by_rho[~g.keep] == 0).all()


def test_the_noise_is_that_of_the_outputs_elements():
    weight = Gaussian(torch.zeros(10, 5, device=DEVICE), 1.0)
    x = torch.eye(5, device=DEVICE).repeat(8, 1)[:37]  # one weight a row: of mean 0 and spread 1
    close(narrow.narrow_linear(x, weight, None, seed(), SALT), noise(37, 10), 1e-6)
    other = seed(99)
    close(narrow.narrow_linear(x, weight, None, other, SALT), noise(37, 10, other), 1e-6)


@pytest.mark.parametrize("kind", [PLAIN, WITH_BIAS, PRUNED], ids=["plain", "bias", "pruned"])
@pytest.mark.parametrize("sizes", SIZES)
def test_outputs_and_gradients_are_those_of_autograd(sizes, kind):
    compare(*sizes, kind)


@pytest.mark.parametrize("sizes", [(37, 150, 10), (33, 129, 20), (70, 70, 64)])
def test_less_exact_products_are_still_close(sizes):
    torch.set_float32_matmul_precision("high")
    compare(*sizes, PRUNED, rtol=1e-2 if ON_GPU else 2e-5)


@pytest.mark.parametrize(("setting", "wanted"), [("highest", "ieee"), ("high", "tf32"), ("medium", "tf32")])
def test_products_are_as_exact_as_pytorchs_are_set_to_be(setting, wanted, monkeypatch):
    asked = []
    start = narrow._start
    monkeypatch.setattr(narrow, "_start", lambda *a, **k: (asked.append(k.get("precision")), start(*a, **k)))
    torch.set_float32_matmul_precision(setting)
    weight, _ = layer(4, 2, PLAIN)
    y = narrow.narrow_linear(torch.ones(2, 4, device=DEVICE, requires_grad=True), weight, None, seed(), SALT)
    torch.set_float32_matmul_precision("high" if setting == "highest" else "highest")  # too late for this layer
    y.sum().backward()
    assert asked == [wanted, wanted, wanted, None]


def test_no_variance_is_no_noise_and_no_gradient_by_it():
    weight, _ = layer(20, 10, PLAIN)
    x = torch.randn(18, 20, device=DEVICE)
    x[::3] = 0
    x.requires_grad_()
    y = narrow.narrow_linear(x, weight, None, seed(), SALT)
    found = torch.autograd.grad(y.sum(), [x, weight.mu, weight.rho])
    assert (y[::3] == 0).all()
    assert all(t.isfinite().all() for t in (y, *found))
    close(found[0][::3], weight.mu.sum(0).expand(6, 20))
    weight.prune(torch.zeros_like(weight.mu, dtype=torch.bool))
    y = narrow.narrow_linear(x, weight, None, seed(), SALT)
    assert (y == 0).all()
    assert not any(t.any() for t in torch.autograd.grad(y.sum(), [x, weight.mu, weight.rho]))


def test_spreads_of_every_size_stay_finite():
    weight, _ = layer(6, 5, PLAIN)
    sizes = torch.tensor([-1000.0, -90, -40, 0, 40], device=DEVICE)
    with torch.no_grad():
        weight.rho.copy_(sizes[:, None].expand(5, 6))
    x = torch.randn(4, 6, device=DEVICE).requires_grad_()
    y = narrow.narrow_linear(x, weight, None, seed(), SALT)
    found = torch.autograd.grad(y.sum(), [x, weight.mu, weight.rho])
    assert all(t.isfinite().all() for t in (y, *found))


def test_only_the_gradients_that_are_asked_for_are_computed(monkeypatch):
    started = []
    start = narrow._start
    monkeypatch.setattr(narrow, "_start", lambda kernel, *a, **k: (started.append(kernel), start(kernel, *a, **k)))
    weight, bias = layer(6, 5)
    x = torch.randn(4, 6, device=DEVICE)
    narrow.narrow_linear(x, weight, bias, seed(), SALT).sum().backward()
    assert started == ["forward_kernel", "weights_kernel", "finish_kernel"]
    assert bias.rho.grad is not None
    started.clear()
    for p in parameters(weight, bias):
        p.requires_grad_(False)
    narrow.narrow_linear(x.requires_grad_(), weight, bias, seed(), SALT).sum().backward()
    assert started == ["forward_kernel", "input_kernel"]


def test_gradients_repeat_to_the_last_bit():
    weight, bias = layer(40, 10)
    x, factors = torch.randn(200, 40, device=DEVICE), torch.randn(200, 10, device=DEVICE)
    draws = []
    for _ in range(2):
        y = narrow.narrow_linear(x, weight, bias, seed(), SALT)
        draws.append([y, *torch.autograd.grad((y * factors).sum(), parameters(weight, bias))])
    assert all(torch.equal(a, b) for a, b in zip(*draws, strict=True))


def test_what_the_kernels_cannot_read_is_refused():
    weight, bias = layer(6, 5)
    x = torch.randn(4, 6, device=DEVICE)

    def run(x, weight, bias, key=None):
        return narrow.narrow_linear(x, weight, bias, seed() if key is None else key, SALT)

    with pytest.raises(ValueError, match="float32"):
        run(x.bfloat16(), weight, bias)
    with pytest.raises(ValueError, match="scattered"):
        run(torch.randn(6, 4, device=DEVICE).t(), weight, bias)
    with pytest.raises(ValueError, match="input"):
        run(x[:, :5].contiguous(), weight, bias)
    with pytest.raises(ValueError, match="bias"):
        run(x, weight, gaussian(6))
    with pytest.raises(ValueError, match="seed"):
        run(x, weight, bias, torch.zeros(1, device=DEVICE))
    with pytest.raises(ValueError, match="a row"):
        run(x[:0], weight, bias)
    with pytest.raises(ValueError, match="outputs"):
        run(x, gaussian(narrow.MOST_OUTPUTS + 1, 6), None)


# --- in the layer


def runs_narrow(inputs, outputs, x, samples, rows):
    """Say whether a layer uses the kernels for ``x``."""
    twin = to_bayesian(nn.Linear(inputs, outputs)).to(DEVICE)
    with active(Pass("local", rows, samples)):
        y = twin(x)
    assert y.shape == (rows * samples, outputs)
    return type(y.grad_fn).__name__ == "NarrowLinearBackward"


def test_the_layer_uses_the_kernels_where_they_serve(monkeypatch):
    for module in (launch, narrow):
        monkeypatch.setattr(
            module, "supports", lambda *tensors: all(t.dtype == torch.float32 and t.is_contiguous() for t in tensors)
        )
    x = torch.randn(12, 7, device=DEVICE)
    most = narrow.MOST_OUTPUTS
    assert runs_narrow(7, 3, x, 1, 12)
    assert runs_narrow(7, most, x, 4, 3)
    assert not runs_narrow(7, most + 1, x, 4, 3)
    assert not runs_narrow(7, 3, x, 4, 12)  # one input for four samples: their products are computed once
    assert not runs_narrow(7, 3, torch.randn(7, 12, device=DEVICE).t(), 1, 12)
    assert not runs_narrow(narrow.MOST_INPUTS + 1, 3, torch.randn(2, narrow.MOST_INPUTS + 1, device=DEVICE), 1, 2)


def test_nothing_but_single_precision_is_served(monkeypatch):
    weight, bias = layer(7, 3)
    x = torch.randn(12, 7, device=DEVICE)
    assert narrow.is_supported(x, weight, bias) == ON_GPU
    monkeypatch.setattr("ucb.kernels.triton.launch.available", lambda _: True)
    assert narrow.is_supported(x, weight, bias)
    assert not narrow.is_supported(x.bfloat16(), weight, bias)
    assert not narrow.is_supported(x[:0], weight, bias)
    assert not narrow.is_supported(x, weight, bias.double())


def test_the_layers_mean_and_spread_are_those_of_its_weights(monkeypatch):
    for module in (launch, narrow):
        monkeypatch.setattr(module, "supports", lambda *_: True)
    twin = to_bayesian(nn.Linear(7, 3), 0.7).to(DEVICE)
    weight, bias = twin.gaussian("weight"), twin.gaussian("bias")
    x = torch.randn(7, device=DEVICE)
    with active(Pass("local", 640, 1)), torch.no_grad():
        y = twin(x.repeat(640, 1))
    mean = F.linear(x, weight.mu, bias.mu)
    spread = F.linear(x.square(), weight.sigma.square(), bias.sigma.square()).sqrt()
    assert ((y.mean(0) - mean).abs() < 4.5 * spread / 640**0.5).all()
    assert ((y.std(0) / spread - 1).abs() < 4.5 / 1280**0.5).all()


@pytest.mark.gpu
def test_a_recorded_graph_draws_new_noise_at_every_replay():
    weight, bias = layer(150, 10)
    x, key = torch.randn(70, 150, device=DEVICE).requires_grad_(), seed()

    def step():
        y = narrow.narrow_linear(x, weight, bias, key, SALT)
        return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *parameters(weight, bias)])]

    step()  # compiles, which a recording cannot
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    seen = []
    for value in (77, 78_000):
        key.fill_(value)
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(recorded, step(), strict=True))
        seen.append(recorded[0].clone())
    assert not torch.isclose(*seen).all()
