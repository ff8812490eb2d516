import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from ucb.bayes import (
    ELBO,
    BayesLayer,
    BayesLinear,
    DeterministicWarning,
    Normal,
    bayesian_form,
    convert,
    find_deterministic,
    forward,
    gaussians,
    mean_forward,
    to_bayesian,
)


class Block(nn.Module):
    """A residual block with functional code in its forward."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(4, 6)


def convolutional():
    layers = [nn.Conv2d(3, 4, 3), Block(4), nn.Sequential(nn.GroupNorm(2, 4), nn.Sequential(Block(4)))]
    return nn.Sequential(*layers, nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 2)), torch.randn(4, 3, 6, 6)


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 2)), torch.randn(4, 5, 8)


NETS = [mlp, convolutional, transformer]


def converted(net, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeterministicWarning)
        return to_bayesian(net, **options)


@pytest.mark.parametrize("build", NETS)
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("grad", [True, False])
def test_with_sigma_going_to_0_the_twin_is_the_original(double, build, mode, grad):
    net, x = build()
    twin = converted(net, init_std_ratio=1e-9)
    getattr(net, mode)()
    getattr(twin, mode)()
    with torch.set_grad_enabled(grad):
        expected = net(x)
        torch.testing.assert_close(mean_forward(twin, x), expected)
        for estimator in ("weights", "local", "flipout"):
            for stack in (True, False):
                out = forward(twin, x, 3, estimator, stack=stack)
                torch.testing.assert_close(out, expected.expand_as(out), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("build", NETS)
def test_the_original_is_left_alone_and_the_twin_trains(build):
    net, x = build()
    before = copy.deepcopy(net.state_dict())
    twin = converted(net)
    y = torch.randint(2, (4,))
    optimizer = torch.optim.SGD(twin.parameters(), 0.1)
    start = {n: g.rho.detach().clone() for n, g in gaussians(twin)}
    for _ in range(3):
        optimizer.zero_grad()
        ELBO(10, Normal(), samples=2).backward(twin, x, y)
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(not torch.equal(g.rho, start[n]) for n, g in gaussians(twin))


@pytest.mark.parametrize("build", NETS)
def test_copies_pickles_and_states_are_faithful(build):
    net, x = build()
    twin = converted(net).eval()
    fresh = converted(net, keep_means=False).eval()
    fresh.load_state_dict(twin.state_dict())
    for other in (copy.deepcopy(twin), pickle.loads(pickle.dumps(twin)), fresh):
        assert torch.equal(other(x), twin(x))


def test_sigma_starts_relative_to_each_layers_own_weights():
    net = nn.Sequential(nn.Linear(1000, 10), nn.Linear(10, 10), nn.BatchNorm1d(10), nn.Linear(10, 4))
    nn.init.zeros_(net[3].weight)
    twin = to_bayesian(net, init_std_ratio=0.2)
    for layer, plain in zip(twin, net, strict=True):
        size = plain.weight.square().mean().sqrt() if plain.weight.any() else torch.tensor(10**-0.5)
        for gaussian in layer.posterior.values():
            torch.testing.assert_close(gaussian.sigma, (0.2 * size).expand_as(gaussian.mu), rtol=1e-5, atol=0)
    assert twin[0].posterior["weight"].sigma.max() < 0.2 * twin[1].posterior["weight"].sigma.max()


def test_means_are_kept_or_drawn_anew():
    net = nn.Sequential(nn.Linear(6, 5), nn.GroupNorm(1, 5))
    nn.init.constant_(net[0].weight, 7.0)
    nn.init.constant_(net[1].weight, 3.0)
    kept, fresh = to_bayesian(net), to_bayesian(net, keep_means=False)
    assert (kept[0].posterior["weight"].mu == 7).all()
    assert fresh[0].posterior["weight"].mu.abs().max() < 1
    assert (fresh[1].posterior["weight"].mu == 1).all()


def test_what_stays_deterministic_is_named():
    net = nn.Sequential(nn.Embedding(7, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.PReLU())
    with pytest.warns(DeterministicWarning) as told:
        twin = to_bayesian(net)
    message = str(told[0].message)
    assert "0 (no Bayesian form is registered for Embedding)" in message
    assert "1.self_attn (MultiheadAttention reads its weights directly)" in message
    assert "1.self_attn.out_proj" in message
    assert "2 (no Bayesian form is registered for PReLU)" in message
    assert find_deterministic(twin) == find_deterministic(net)
    assert {name for name, _ in find_deterministic(twin)} == {"0", "1.self_attn", "1.self_attn.out_proj", "2"}
    assert {name.rpartition(".")[0] for name, _ in gaussians(twin)} == {"1.linear1", "1.linear2", "1.norm1", "1.norm2"}


def test_tied_weights_stay_tied():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    twin = to_bayesian(net)
    assert twin[0].posterior["weight"] is twin[2].posterior["weight"]
    assert len(list(gaussians(twin))) == 3
    assert len(list(twin.parameters())) == 6
    x = torch.randn(5, 4)
    torch.testing.assert_close(twin.eval()(x), net.eval()(x))
    with pytest.raises(RuntimeError, match="used twice"):
        forward(twin, x, 1, "local")


def test_a_weight_tied_to_a_deterministic_module_stays_deterministic_and_tied():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.hidden, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.hidden(self.embed(x)))

    with pytest.warns(DeterministicWarning, match="head .shares a weight with embed"):
        twin = to_bayesian(Language())
    assert twin.head.weight is twin.embed.weight
    assert isinstance(twin.hidden, BayesLinear)


def test_one_module_under_two_names_becomes_one_twin():
    shared = nn.Linear(4, 4)
    twin = to_bayesian(nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)}))
    assert twin["a"] is twin["b"][0]
    assert len(list(gaussians(twin))) == 2


class Doubling(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Doubling(3, 3), "no Bayesian form is registered for Doubling"),
        (parametrizations.weight_norm(nn.Linear(3, 3)), "ParametrizedLinear"),
        (nn.LSTM(3, 3), "no Bayesian form is registered for LSTM"),
    ],
)
def test_layers_that_only_look_convertible_are_left_and_named(layer, reason):
    with pytest.warns(DeterministicWarning, match=reason):
        twin = to_bayesian(nn.ModuleList([layer, nn.Linear(3, 3)]))
    assert not isinstance(twin[0], BayesLayer)


class Aliased(nn.Module):
    """Holds its layers by name, twice, and in a plain list; reads what a plain layer says of itself; has a hook."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.again = self.second
        self.in_order = [self.first, self.second]
        self.seen = []
        self.first.register_forward_hook(lambda layer, inputs, output: self.seen.append(output))

    def forward(self, x):
        for layer in self.in_order:
            x = layer(x.reshape(-1, layer.in_features))
        return x


def test_every_reference_to_a_layer_sees_its_twin(double):
    net = Aliased()
    twin = to_bayesian(net)
    assert twin.again is twin.second is twin.in_order[1]
    assert isinstance(twin.in_order[0], BayesLinear)
    assert isinstance(net.first, nn.Linear)
    x = torch.randn(3, 4)
    assert (forward(twin, x, 50, stack=True).std(0) > 0).all()
    assert len(net.seen) > 0  # a copied hook still writes where the first one did
    assert len(list(gaussians(twin))) == 4


def test_one_module_twice_in_one_parent(double):
    layer = nn.Linear(4, 4)
    twin = to_bayesian(nn.Sequential(layer, nn.ReLU(), layer))
    assert isinstance(twin[0], BayesLinear)
    assert twin[0] is twin[2]
    assert len(list(twin.parameters())) == 4


def test_a_plain_call_in_training_mode_is_one_pass(double):
    """Two layers that share a weight, called on the same input, answer alike; the next call draws anew."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)
            self.b.weight, self.b.bias = self.a.weight, self.a.bias

        def forward(self, x):
            return torch.stack([self.a(x), self.b(x)])

    twin = to_bayesian(Pair())
    x = torch.randn(5, 4)
    first, second = twin(x), twin(x)
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first, second)
    with pytest.raises(RuntimeError):
        twin(torch.randn(5, 7))
    assert torch.equal(twin.eval()(x), twin.eval()(x))  # the pass that failed does not linger


def test_a_layer_that_computes_nothing_yet_can_be_scaled():
    with pytest.warns(UserWarning, match="zero-element"):
        empty = nn.Linear(3, 0)
    assert len(list(gaussians(to_bayesian(nn.ModuleList([empty, nn.Linear(3, 2)]))))) == 4


def test_frozen_layers_stay_frozen_and_modes_dtypes_are_kept():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double()
    net[0].requires_grad_(False)
    net[1].eval()
    twin = to_bayesian(net)
    assert not any(p.requires_grad for p in twin[0].parameters())
    assert all(p.requires_grad and p.dtype == torch.float64 for p in twin[1].parameters())
    assert twin[0].training
    assert not twin[1].training


def test_a_root_that_is_itself_a_layer():
    twin = to_bayesian(nn.Linear(3, 2))
    assert isinstance(twin, BayesLinear)


class Scale(nn.Module):
    """A layer type of a user's own."""

    def __init__(self, size):
        super().__init__()
        self.factor = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        return x * self.factor


class BayesScale(BayesLayer):
    """Its Bayesian form: only what it does under one set of weights needs to be said."""

    def transform(self, x, weights):
        return x * weights["factor"]


@pytest.fixture
def registered():
    bayesian_form(Scale)(lambda layer, posterior: BayesScale(**posterior))
    yield
    del convert._builders[Scale]


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
@pytest.mark.parametrize("stack", [True, False])
def test_a_registered_layer_type_works_under_every_estimator(double, registered, estimator, stack):
    net = nn.Sequential(Scale(4), nn.Linear(4, 3), nn.Tanh(), Scale(3))
    twin = to_bayesian(net, init_std_ratio=0.3)
    assert [n for n, _ in gaussians(twin)] == ["0.factor", "1.weight", "1.bias", "3.factor"]
    x = torch.randn(5, 4)
    out = forward(twin, x, 2000, estimator, stack=True if stack else None)
    assert out.shape == (2000, 5, 3)
    assert (out.std(0) > 0).all()
    terms = ELBO(10, Normal(), nn.functional.mse_loss, samples=3, estimator=estimator, stack=stack).backward(
        twin, x, torch.zeros(5, 3)
    )
    assert terms.loss.isfinite()
    assert all(p.grad.abs().sum() > 0 for p in twin.parameters())


@pytest.mark.parametrize("ratio", [0, -0.1, float("nan"), float("inf")])
def test_a_spread_must_be_positive(ratio):
    with pytest.raises(ValueError, match="init_std_ratio must be a number above 0"):
        to_bayesian(nn.Linear(2, 2), ratio)


def test_bad_nets_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match=r"nothing in this Sequential can become Bayesian.*Linear"):
        to_bayesian(nn.Sequential(nn.Embedding(3, 3), nn.ReLU()))
    with pytest.raises(ValueError, match="Bayesian already"):
        to_bayesian(to_bayesian(nn.Linear(3, 3)))
    with pytest.raises(TypeError, match="not a NoneType"):
        to_bayesian(None)
    with pytest.raises(ValueError, match="meta device"):
        to_bayesian(nn.Linear(3, 3, device="meta"))
    broken = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        broken[1].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"1\.weight holds NaN"):
        to_bayesian(broken)
    with pytest.raises(ValueError, match="run the net once"):
        to_bayesian(nn.Sequential(nn.LazyLinear(3)))
