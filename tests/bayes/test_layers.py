"""Every layer under every estimator, against the ordinary layer with the same weights and against exact moments."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from ucb.bayes import ELBO, Normal, forward, gaussians, to_bayesian
from ucb.bayes.layers.base import rows_by_pixel, samples_by_pixel, swap_middle
from ucb.bayes.passes import Pass, run

ROWS, SAMPLES = 4, 3
LAYERS = {
    "linear": (lambda: nn.Linear(5, 3), (5,)),
    "linear without bias": (lambda: nn.Linear(5, 3, bias=False), (5,)),
    "linear on sequences": (lambda: nn.Linear(5, 3), (7, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (4, 9)),
    "conv2d": (lambda: nn.Conv2d(3, 5, 3), (3, 6, 6)),
    "conv2d without bias": (lambda: nn.Conv2d(3, 5, 3, bias=False), (3, 6, 6)),
    "conv2d strided": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (4, 7, 6)),
    "conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 5, 5)),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding="same"), (4, 5, 5)),
    "conv2d circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    "conv2d reflect same": (lambda: nn.Conv2d(2, 3, 3, padding="same", padding_mode="reflect"), (2, 5, 5)),
    "batch norm": (lambda: nn.BatchNorm2d(3), (3, 4, 4)),
    "batch norm on vectors": (lambda: nn.BatchNorm1d(3), (3,)),
    "batch norm with cumulative mean": (lambda: nn.BatchNorm2d(3, momentum=None), (3, 4, 4)),
    "batch norm without statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), (3, 4, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4, 3, 3)),
    "layer norm": (lambda: nn.LayerNorm(5), (7, 5)),
    "layer norm on images": (lambda: nn.LayerNorm([3, 4]), (2, 3, 4)),
}


@pytest.fixture(params=LAYERS)
def case(request, double):
    """An ordinary layer with interesting weights, its Bayesian twin, and an input."""
    build, shape = LAYERS[request.param]
    plain = build()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.normal_()
    return plain, to_bayesian(plain, init_std_ratio=0.7), 2 * torch.randn(ROWS, *shape) + 1


def plain_output(plain, weights, x):
    return functional_call(plain, weights, (x,))


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("expanded", [False, True])
def test_samples_that_travel_together_equal_the_ordinary_layer_each(case, mode, expanded):
    plain, layer, x = case
    getattr(plain, mode)()
    getattr(layer, mode)()
    p = Pass("weights", ROWS, SAMPLES)
    together = run(layer, x, p, shared=not expanded)
    for s in range(SAMPLES):
        alone = plain_output(plain, {name: p.all_drawn(g)[s] for name, g in gaussians(layer)}, x)
        torch.testing.assert_close(together[s], alone)
    for name, buffer in plain.named_buffers():  # running statistics moved as if the samples had come one by one
        torch.testing.assert_close(layer.get_buffer(name), buffer)


def test_eval_mode_uses_the_mean_and_training_mode_a_sample(case):
    plain, layer, x = case
    torch.testing.assert_close(layer.eval()(x), plain.eval()(x))
    layer.train()
    assert not torch.equal(layer(x), layer(x))


@torch.no_grad()
def moments(layer, x, estimator):
    """Mean and covariance of one row's outputs, all positions together, over many samples, fifty at a time."""
    out = torch.cat([forward(layer, x, 50, estimator, stack=True)[:, 0].flatten(1) for _ in range(160)])
    return out.mean(0), torch.cov(out.T)


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_every_estimator_gives_a_row_the_same_distribution(case, estimator):
    """Mean and whole covariance of a row's outputs agree with weight samples: a marginal check alone would pass noise
    that is drawn for each position on its own, which is wrong for a convolution."""
    _, layer, x = case
    layer.eval()
    mean, covariance = moments(layer, x, "weights")
    found, found_covariance = moments(layer, x, estimator)
    scale = covariance.diagonal().sqrt()
    assert ((found - mean).abs() < 0.08 * scale + 1e-9).all()
    assert ((found_covariance - covariance).abs() < 0.12 * torch.outer(scale, scale) + 1e-9).all()


def test_local_moments_are_exact_for_a_linear_layer(double):
    layer = to_bayesian(nn.Linear(6, 4), init_std_ratio=0.8)
    x = torch.randn(3, 6)
    weight, bias = layer.posterior["weight"], layer.posterior["bias"]
    mean = x @ weight.mu.T + bias.mu
    variance = x.square() @ weight.sigma.square().T + bias.sigma.square()
    out = forward(layer, x, 50_000, "local").detach()
    torch.testing.assert_close(out.mean(0), mean.detach(), rtol=0, atol=0.02)
    torch.testing.assert_close(out.var(0), variance.detach(), rtol=0.05, atol=0)


def small_net():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.GroupNorm(1, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 8),
        nn.Tanh(),
        nn.Linear(8, 4),
    )


def test_estimators_agree_in_expectation_on_a_whole_net(double):
    """Loss and gradient, through ReLU, pooling and softmax, lie within the standard errors of each other."""
    net = to_bayesian(small_net(), init_std_ratio=0.3)
    x, y = torch.randn(8, 2, 4, 4), torch.randint(4, (8,))
    found = {}
    for estimator in ("weights", "local", "flipout"):
        elbo = ELBO(100, Normal(0.3), samples=10, estimator=estimator)
        losses, gradients = [], []
        for _ in range(300):
            net.zero_grad()
            losses.append(elbo.backward(net, x, y).loss)
            gradients.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        found[estimator] = [(d.mean(0), d.var(0) / len(d)) for d in (torch.stack(losses), torch.stack(gradients))]
    for estimator in ("local", "flipout"):
        for (mean, error), (reference, other) in zip(found[estimator], found["weights"], strict=True):
            z = (mean - reference) / (error + other).sqrt().clamp_min(1e-12)
            assert z.abs().max() < 5
            assert z.square().mean() < 1.3  # over hundreds of parameters, standard errors explain the differences


def test_local_has_less_gradient_noise_than_weights(double):
    net = to_bayesian(nn.Linear(50, 5), init_std_ratio=0.5)
    x, y = torch.randn(64, 50), torch.randint(5, (64,))
    noise = {}
    for estimator in ("weights", "local"):
        gradients = []
        for _ in range(200):
            net.zero_grad()
            ELBO(100, Normal(), temperature=0, estimator=estimator).backward(net, x, y)
            weight = net.posterior["weight"]
            gradients.append(torch.stack([weight.mu.grad, weight.rho.grad]))
        noise[estimator] = torch.stack(gradients).var(0).mean((1, 2))
    assert (noise["local"] < torch.tensor([0.7, 0.2]) * noise["weights"]).all(), noise


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
@pytest.mark.parametrize("samples", [1, 4])
def test_a_batch_of_one_works(double, estimator, samples):
    net = to_bayesian(small_net()).eval()
    assert forward(net, torch.randn(1, 2, 4, 4), samples, estimator, stack=True).shape == (samples, 1, 4)


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
def test_pruned_weights_carry_no_noise_under_any_estimator(double, estimator):
    layer = to_bayesian(nn.Linear(4, 3))
    for gaussian in layer.posterior.values():
        gaussian.prune(torch.zeros_like(gaussian.mu, dtype=torch.bool))
    out = forward(layer, torch.randn(5, 4), 7, estimator)
    assert (out == 0).all()
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_rows_of_zeros_keep_local_gradients_finite():
    layer = to_bayesian(nn.Linear(4, 3, bias=False))
    forward(layer, torch.zeros(5, 4), 2, "local").sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
def test_rows_of_one_sample_are_uncorrelated_only_where_they_should_be(double, estimator):
    """Whole weight samples move all rows alike; the others give every row weights of its own."""
    layer = to_bayesian(nn.Linear(6, 1, bias=False), init_std_ratio=1.0)
    x = torch.randn(1, 6).expand(2, 6)
    out = forward(layer, x, 20_000, estimator, stack=True).detach().squeeze(2)
    correlation = torch.corrcoef(out.T)[0, 1]
    assert abs(float(correlation) - (1 if estimator == "weights" else 0)) < 0.05


def test_local_noise_survives_low_precision():
    """Squares of small spreads underflow in half precision, and 0 has no finite slope under a square root."""
    layer = to_bayesian(nn.Linear(64, 8, bias=False))
    weight = layer.posterior["weight"]
    weight.set_sigma(torch.full_like(weight.mu, 1e-4))
    with torch.no_grad():
        weight.mu.zero_()
    with torch.autocast("cpu", dtype=torch.float16):
        out = forward(layer, torch.ones(4, 64), 2000, "local").float().detach()
    torch.testing.assert_close(out.std(), torch.tensor(8e-4), rtol=0.05, atol=0)
    half = layer.half()
    forward(half, torch.zeros(4, 64).half(), 2, "local").float().sum().backward()
    assert all(p.grad.isfinite().all() for p in half.parameters())


def test_batch_norm_in_training_counts_every_sample_like_a_loop(double):
    net = to_bayesian(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    other = copy.deepcopy(net)
    x = torch.randn(6, 1, 5, 5)
    forward(net, x, 4, stack=True)
    forward(other, x, 4, stack=False)
    assert int(net[1].num_batches_tracked) == int(other[1].num_batches_tracked) == 4


@pytest.mark.parametrize("groups", [1, 2])
def test_samples_by_pixel_convolve_as_samples_side_by_side_do(groups):
    rows, samples, channels, outputs = 3, 4, 6, 8
    x = torch.randn(rows * samples, channels, 7, 5).double()
    weight = torch.randn(samples, outputs, channels // groups, 3, 3).double()
    by_pixel = samples_by_pixel(x, samples)
    assert by_pixel.is_contiguous(memory_format=torch.channels_last)
    out = torch.nn.functional.conv2d(by_pixel, weight.flatten(0, 1), groups=samples * groups)
    result = rows_by_pixel(out, samples)
    assert result.is_contiguous(memory_format=torch.channels_last)
    one_by_one = [torch.nn.functional.conv2d(x[s::samples], weight[s], groups=groups) for s in range(samples)]
    for s, expected in enumerate(one_by_one):
        torch.testing.assert_close(result[s::samples], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("last", [8, 3, 1])  # pieces of 16 bytes, and numbers one by one
def test_axes_change_places_there_and_back(last, dtype):
    x = torch.randn(2, 3, 5, last).to(dtype).requires_grad_()
    y = swap_middle(x)
    assert y.is_contiguous()
    assert torch.equal(y, x.transpose(1, 2))
    slope = torch.randn(2, 5, 3, last).to(dtype)
    (grad,) = torch.autograd.grad(y, x, slope)
    assert torch.equal(grad, slope.transpose(1, 2))
    later = torch.randn(61, last).to(dtype)[1:].view(2, 3, 10, last)  # not where 16 bytes begin
    assert torch.equal(swap_middle(later), later.transpose(1, 2))
