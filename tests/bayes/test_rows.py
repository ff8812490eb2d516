"""Nets that look across the rows of a batch: samples that travel in the batch axis must not be mixed by them."""

import random
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ucb.bayes import ELBO, DeterministicWarning, Normal, forward, gaussians, kl_divergence, to_bayesian
from ucb.bayes.passes import Pass, run
from ucb.bayes.sampling import choose_sample_batching

SAMPLES = 3


class Across(nn.Module):
    """Two Bayesian layers, and between them something that looks across rows."""

    def __init__(self, look, **layers):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.look = look
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x):
        return self.last(self.look(self, self.first(x)))


class Distances(nn.Module):
    """Says how far every row is from every other: another shape where there are more rows."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return torch.cdist(self.a(x), self.b(x))


def attend(net, h):
    return torch.softmax(h @ h.T, -1) @ h


def reshape_by_time(net, h):
    """Takes [batch, time, ...] for [time, batch, ...]."""
    batch, time, features = h.shape
    return h.reshape(time, batch, features).mean(0)


def centre_pairs(net, h):
    pairs = h.reshape(2, len(h) // 2, -1)
    return (pairs - pairs.mean(0)).reshape(h.shape)


LOOKS = {
    "mean": lambda net, h: h - h.mean(0),
    "a little of the mean": lambda net, h: h + 1e-3 * h.mean(0),
    "attention": attend,
    "einsum": lambda net, h: torch.einsum("bi,ci,cj->bj", h, h, h),
    "cumsum": lambda net, h: h.cumsum(0),
    "sort": lambda net, h: h.sort(0).values,
    "roll": lambda net, h: h + h.roll(1, 0),
    "roll by as many as there are samples": lambda net, h: h + h.roll(SAMPLES, 0),
    "maximum": lambda net, h: h / h.abs().max(),
    "a maximum that is rarely reached": lambda net, h: h / h.abs().max().clamp_min(8),
    "batch_norm": lambda net, h: F.batch_norm(h, None, None, training=True),
    "batch_norm in training": lambda net, h: F.batch_norm(h, net.m, net.v, training=net.training),
    "mean after dropout": lambda net, h: F.dropout(h, 0.5, net.training) - h.mean(0),
    "lstm": lambda net, h: net.lstm(h)[0],
    "MultiheadAttention": lambda net, h: net.attention(h, h, h)[0],
    "number of rows": lambda net, h: h / len(h),
    "position": lambda net, h: h + torch.arange(len(h)).unsqueeze(1),
    "pairs": centre_pairs,
    "reshape": reshape_by_time,
}


def build(look):
    """Return a net that looks across rows, converted, and inputs."""
    x = torch.randn(6, 5, 4) if look == "reshape" else torch.randn(6, 4)
    parts = {"lstm": nn.LSTM(4, 4), "attention": nn.MultiheadAttention(4, 2)}
    net = Across(LOOKS[look], **parts) if look in LOOKS else Distances()
    net.register_buffer("m", torch.zeros(4))
    net.register_buffer("v", torch.ones(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeterministicWarning)
        return to_bayesian(net), x


def one_by_one(net, x, samples=SAMPLES):
    """Each sample alone, drawn from the generator that the tests use."""
    generator = torch.Generator().manual_seed(7)
    passes = [Pass("weights", len(x), 1, generator) for _ in range(samples)]
    return torch.cat([run(net, x, p) for p in passes])


def gradients(net):
    found = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    return found


MIXING = [*LOOKS, "cdist"]
RANDOM = "mean after dropout"


@pytest.mark.parametrize("look", [look for look in MIXING if look != RANDOM])
def test_a_net_that_looks_across_rows_sees_one_sample_at_a_time(double, look):
    net, x = build(look)
    y = torch.randint(3, (6,))
    expected = one_by_one(net, x)
    found = forward(net, x, SAMPLES, stack=True, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(found, expected)
    prior = Normal(0.7)
    nll = torch.stack([F.cross_entropy(out, y) for out in expected]).mean()
    loss = nll + kl_divergence(net, prior) / 50
    loss.backward()
    by_loop = gradients(net)
    for stack in (True, False):
        elbo = ELBO(50, prior, samples=SAMPLES, stack=stack, generator=torch.Generator().manual_seed(7))
        terms = elbo(net, x, y)
        torch.testing.assert_close(terms.loss, loss)
        terms.loss.backward()
        torch.testing.assert_close(gradients(net), by_loop)
    elbo = ELBO(50, prior, samples=SAMPLES, stack=True, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(elbo.backward(net, x, y).loss, loss)
    torch.testing.assert_close(gradients(net), by_loop)


@pytest.mark.parametrize("look", MIXING)
@pytest.mark.parametrize("sigma", [1e-6, 0.1])
def test_it_is_seen_however_sure_the_weights_are_and_in_single_precision(look, sigma):
    net, x = build(look)
    for _, gaussian in gaussians(net):
        gaussian.set_sigma(torch.full_like(gaussian.mu, sigma))
    assert choose_sample_batching(net, x, Pass("weights", 6, SAMPLES)) == "alone"
    assert choose_sample_batching(net, x, Pass("weights", 6, 10)) == "alone"


@pytest.mark.parametrize("look", [look for look in MIXING if look not in ("number of rows", "position")])
@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_rows_with_weights_of_their_own_refuse_a_net_that_looks_across_them(look, estimator):
    net, x = build(look)
    for samples in (1, SAMPLES):
        with pytest.raises(RuntimeError, match=r"looks across the rows of a batch.*use estimator='weights'"):
            forward(net, x, samples, estimator)
    with pytest.raises(RuntimeError, match="estimator='weights'"):
        ELBO(9, samples=2, estimator=estimator).backward(net, x, torch.randint(3, (6,)))


def dense():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)), torch.randn(6, 4)


def normalised():
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.3), nn.GroupNorm(2, 4), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), torch.randn(6, 2, 5, 5)


def tokens():
    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), nn.Flatten(), nn.Linear(20, 3)), torch.randint(9, (6, 5))


def centred_input():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = dense()[0]

        def forward(self, x):
            return self.net((x - x.mean(0)) / x.std(0, correction=0))

    return Centred(), torch.randn(6, 4)


@pytest.mark.parametrize("build", [dense, normalised, tokens, centred_input])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
def test_nets_that_keep_rows_apart_are_not_slowed_down(build, training, estimator):
    """Neither dropout nor batch normalisation, of which every sample has its own, is taken for a look across rows."""
    plain, x = build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeterministicWarning)
        net = to_bayesian(plain).train(training)
    assert choose_sample_batching(net, x, Pass(estimator, 6, SAMPLES)) == "shared"


def test_each_mode_of_each_module_is_tried_by_itself(double):
    class Inner(nn.Module):
        def forward(self, h):
            return h - h.mean(0) if self.training else h

    net, x = to_bayesian(nn.Sequential(nn.Linear(4, 4), Inner(), nn.Linear(4, 3))), torch.randn(6, 4)
    for _ in range(2):
        for training in (True, False):
            net[1].train(training)
            assert choose_sample_batching(net, x, Pass("weights", 6, SAMPLES)) == ("alone" if training else "shared")
            found = forward(net, x, SAMPLES, stack=True, generator=torch.Generator().manual_seed(7))
            if training:
                torch.testing.assert_close(found, one_by_one(net, x))
    assert not net[1].training


def test_each_kind_of_input_is_tried_by_itself():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 3)

        def forward(self, x):
            h = self.first(x.to(torch.float32))
            return h - h.mean(0) if x.dim() == 3 and x.shape[1] > 1 else h

    net = to_bayesian(Rows())
    for x, way in [
        (torch.randn(6, 4), "shared"),
        (torch.randn(6, 1, 4), "shared"),
        (torch.randn(6, 2, 4), "alone"),
        (torch.randn(6, 3, 4), "alone"),
        (torch.randint(5, (6, 4)), "shared"),
    ]:
        assert choose_sample_batching(net, x, Pass("weights", 6, SAMPLES)) == way


def test_a_net_is_tried_once_and_leaves_no_trace():
    """Buffers that are written or replaced, random numbers of three kinds, and modes are as before."""

    class Busy(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 3)
            self.register_buffer("written", torch.zeros(()))
            self.register_buffer("replaced", torch.zeros(()))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            self.written += 1
            self.replaced = self.replaced + 1
            shift = random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002
            return self.first(x) + shift

    net, x = to_bayesian(Busy()), torch.randn(6, 4)
    drawn = [(random.random(), np.random.rand(), float(torch.rand(()))) for _ in range(2) if seed_all()]  # noqa: NPY002
    seed_all()
    written = net.written
    assert choose_sample_batching(net, x, Pass("weights", 6, SAMPLES)) == "shared", (
        "what it draws is no look across rows"
    )
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == drawn[0]  # noqa: NPY002
    assert net.written is written
    assert float(net.written) == float(net.replaced) == 0
    assert net.training
    calls = net.calls
    choose_sample_batching(net, x, Pass("weights", 6, SAMPLES))
    assert net.calls == calls


def seed_all():
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    return True


def test_a_net_that_takes_one_number_of_rows_only_goes_one_by_one(double):
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.mix = nn.Linear(4, 3), nn.Buffer(torch.randn(6, 6))

        def forward(self, x):
            return self.mix @ self.first(x)

    net, x = to_bayesian(Fixed()), torch.randn(6, 4)
    found = forward(net, x, SAMPLES, stack=True, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(found, one_by_one(net, x))
    with pytest.raises(RuntimeError, match="looks across the rows"):
        forward(net, x, 1, "local")
    with pytest.raises(RuntimeError, match="shape"):
        forward(net, torch.randn(5, 4), SAMPLES, stack=True)
