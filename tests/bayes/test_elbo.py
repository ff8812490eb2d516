"""The objective against closed forms: a linear model with Gaussian noise, where everything is known."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from ucb import kernels
from ucb.bayes import (
    ELBO,
    Gaussian,
    GaussianLikelihood,
    Normal,
    PreviousPosterior,
    ScaleMixture,
    gaussians,
    to_bayesian,
)

NOISE, PRIOR = 0.5, 0.8
ESTIMATORS = ["weights", "local", "flipout"]


@pytest.fixture
def data(double):
    """40 rows of 3 correlated inputs, y = 2 x1 - x2 + noise."""
    x = torch.randn(40, 3) @ torch.tensor([[1.0, 0.6, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])
    return x, x @ torch.tensor([[2.0], [-1.0], [0.0]]) + NOISE * torch.randn(40, 1)


def linear(sigma=0.3):
    net = to_bayesian(nn.Linear(3, 1, bias=False))
    net.posterior["weight"].set_sigma(torch.tensor([[sigma, 2 * sigma, 3 * sigma]]))
    return net


def closed_form(net, x, y, temperature=1.0):
    """Mean NLL and KL of the linear-Gaussian model, exactly; differentiable."""
    g = net.posterior["weight"]
    error = (y - x @ g.mu.T).square().sum() + (x.square() @ g.sigma.square().T).sum()
    nll = error / (2 * NOISE**2 * len(x)) + math.log(NOISE) + 0.5 * math.log(2 * math.pi)
    kl = torch.distributions.kl_divergence(
        torch.distributions.Normal(g.mu, g.sigma), torch.distributions.Normal(torch.zeros(1), PRIOR)
    ).sum()
    return nll, kl


def objective(x, **options):
    return ELBO(len(x), Normal(PRIOR), GaussianLikelihood(NOISE), **options)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("lean", [True, False])
def test_value_and_gradient_are_the_closed_form(data, estimator, lean):
    x, y = data
    net = linear()
    nll, kl = closed_form(net, x, y)
    weight = net.posterior["weight"]
    exact = torch.cat(torch.autograd.grad(nll + 0.7 * kl / len(x), (weight.mu, weight.rho)))
    values, gradients = [], []
    for _ in range(400):
        net.zero_grad()
        elbo = objective(x, samples=20, estimator=estimator, temperature=0.7)
        if lean:
            terms = elbo.backward(net, x, y)
        else:
            terms = elbo(net, x, y)
            terms.loss.backward()
        torch.testing.assert_close(terms.kl, kl.detach())
        values.append(terms.nll)
        gradients.append(torch.cat([weight.mu.grad, weight.rho.grad]))
    assert_mean(torch.stack(values), nll.detach())
    assert_mean(torch.stack(gradients), exact)


def assert_mean(draws, expected, sigmas=4.5):
    """The mean of independent draws lies within a few standard errors of what it should be."""
    error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - expected).abs() <= sigmas * error + 1e-12).all(), (draws.mean(0), expected, error)


@pytest.mark.parametrize("prior", [Normal(0.3), ScaleMixture(0.5, 1.0, 0.1), "previous"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("stack", [True, False])
def test_gradient_agrees_with_finite_differences(double, prior, estimator, stack):
    net = to_bayesian(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), init_std_ratio=0.5)
    if prior == "previous":
        prior = PreviousPosterior(to_bayesian(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))))
    x, y = torch.randn(6, 3), torch.randint(2, (6,))

    def loss():
        generator = torch.Generator().manual_seed(1)  # the same noise every time
        return ELBO(50, prior, samples=3, prior_samples=2, estimator=estimator, stack=stack, generator=generator)(
            net, x, y
        ).loss

    loss().backward()
    step = 1e-5
    for _, gaussian in gaussians(net):
        for parameter in (gaussian.mu, gaussian.rho):
            index = (0,) * parameter.dim()
            with torch.no_grad():
                parameter[index] += step
                above = loss()
                parameter[index] -= 2 * step
                below = loss()
                parameter[index] += step
            numeric = (above - below).detach() / (2 * step)
            torch.testing.assert_close(parameter.grad[index], numeric, rtol=1e-5, atol=1e-8)


class SameNoise:
    """Gives the k-th draw for a weight of some shape the same noise, whatever order the weights are drawn in."""

    def __init__(self):
        self.drawn = {}

    def __call__(self, shape):
        k = self.drawn[shape] = self.drawn.get(shape, 0) + 1
        generator = torch.Generator().manual_seed(hash((tuple(shape), k)))
        return torch.randn(shape, generator=generator)

    def sample(self, gaussian, shape=(), generator=None):
        draws = [gaussian.mean + gaussian.sigma * self(gaussian.mu.shape) for _ in range(math.prod(shape))]
        return torch.stack(draws).reshape(*shape, *gaussian.mu.shape)

    def draw(self, mean, sigma, eps, w, generator):
        eps.copy_(self(mean.shape))
        w.copy_(mean + sigma * eps)


@pytest.mark.parametrize("prior", [Normal(0.3), ScaleMixture(0.5, 1.0, 0.1), "each weight its own"])
@pytest.mark.parametrize(("samples", "prior_samples"), [(3, 3), (3, 1), (1, 4)])
@pytest.mark.parametrize("special", ["nothing", "pruned", "frozen"])
def test_lean_gradients_are_autograds(double, monkeypatch, prior, samples, prior_samples, special):
    """With the same noise, the gradient written by hand is what autograd finds; so are NLL and KL."""
    plain = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 3), nn.Linear(3, 5))
    net = to_bayesian(plain, init_std_ratio=0.5)
    net.append(nn.PReLU())  # an ordinary parameter
    if prior == "each weight its own":
        prior = PreviousPosterior(to_bayesian(plain, keep_means=False))
    if special == "pruned":
        net[2].posterior["weight"].prune(torch.rand(3, 8) > 0.4)
    if special == "frozen":
        net[0].requires_grad_(False)
        net[2].posterior["weight"].mu.requires_grad_(False)
        net[3].posterior["weight"].rho.requires_grad_(False)
    x, y = torch.randn(6, 1, 3, 3), torch.randint(3, (6,))
    results = []
    for lean in (True, False):
        net.zero_grad()
        noise = SameNoise()
        monkeypatch.setattr(Gaussian, "sample", lambda g, *a, noise=noise: noise.sample(g, *a))
        monkeypatch.setattr(kernels, "draw", noise.draw)
        elbo = ELBO(30, prior, samples=samples, prior_samples=prior_samples)
        terms = elbo.backward(net, x, y) if lean else elbo(net, x, y)
        if not lean:
            terms.loss.backward()
        results.append((terms, {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}))
    (lean_terms, lean_grads), (terms, grads) = results
    for a, b in zip(lean_terms, terms, strict=True):
        torch.testing.assert_close(a, b.detach())
    assert lean_grads.keys() == grads.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(lean_grads[name], grad, msg=name)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(
    ("estimator", "stack"), [("weights", False), ("weights", True), ("local", None), ("flipout", None)]
)
def test_a_frozen_sigma_has_no_gradient_and_changes_none(monkeypatch, estimator, stack, temperature, pruned, compiled):
    if not compiled:
        monkeypatch.setattr(kernels, "load_library", lambda: None)
    net = to_bayesian(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), init_std_ratio=0.5).append(nn.PReLU())
    if pruned:
        net[0].posterior["weight"].prune(torch.rand(6, 8) > 0.4)
    x, y, found = torch.randn(5, 8), torch.randint(3, (5,)), []
    for is_frozen in (False, True):
        for _, g in gaussians(net):
            g.rho.requires_grad_(not is_frozen)
        net.zero_grad()
        elbo = ELBO(30, temperature=temperature, samples=3, estimator=estimator, stack=stack)
        torch.manual_seed(0)
        terms = elbo.backward(net, x, y)
        found.append(({n: p.grad for n, p in net.named_parameters() if p.grad is not None}, terms))
    (learning, terms), (frozen, same_terms) = found
    assert frozen.keys() == {name for name in learning if not name.endswith("rho")}
    assert all(torch.equal(grad, learning[name]) for name, grad in frozen.items())
    assert terms == same_terms


@pytest.mark.parametrize("layout", ["pruned", "channels_last", "both"])
@pytest.mark.parametrize("prior", [Normal(0.3), ScaleMixture(0.5, 1.0, 0.1)])
def test_memory_layout_does_not_matter(layout, prior):
    net = to_bayesian(nn.Conv2d(3, 4, 2))
    weight = net.posterior["weight"]
    if layout != "channels_last":
        weight.prune(torch.rand(4, 3, 2, 2).permute(0, 1, 3, 2) > 0.4)
    if layout != "pruned":
        net.to(memory_format=torch.channels_last)
    terms = ELBO(9, prior, lambda out, y: out.square().mean(), samples=2).backward(
        net, torch.randn(2, 3, 4, 4), torch.zeros(2)
    )
    assert terms.loss.isfinite()
    assert weight.mu.grad.isfinite().all()


def test_a_step_in_inference_mode_does_not_poison_the_next():
    net, x, y = to_bayesian(nn.Linear(3, 2)), torch.randn(5, 3), torch.randint(2, (5,))
    with torch.inference_mode(), pytest.raises(RuntimeError):
        ELBO(5).backward(net, x, y)
    assert ELBO(5).backward(net, x, y).loss.isfinite()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_net_with_nothing_to_learn_is_told_so(estimator):
    x, y = torch.randn(5, 3), torch.randint(2, (5,))
    for net in (nn.Linear(3, 2), to_bayesian(nn.Linear(3, 2)).requires_grad_(False)):
        for step in (ELBO(5, estimator=estimator).backward, ELBO(5, estimator=estimator)):
            with pytest.raises((ValueError, RuntimeError), match=r"no Gaussian weight|does not require grad"):
                step(net, x, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_backward_adds_to_gradients_that_are_there(double, estimator):
    net = to_bayesian(nn.Linear(3, 2))
    x, y = torch.randn(5, 3), torch.randint(2, (5,))
    for _ in range(2):
        elbo = ELBO(9, Normal(), samples=2, estimator=estimator, generator=torch.Generator().manual_seed(3))
        elbo.backward(net, x, y)
        once = [p.grad / 2 for p in net.parameters()]
    net.zero_grad()
    dataclasses.replace(elbo, generator=torch.Generator().manual_seed(3)).backward(net, x, y)
    for parameter, half in zip(net.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, half)


def exact_posterior(x, y):
    """Mean and precision of the linear model's posterior, by the textbook."""
    precision = x.T @ x / NOISE**2 + torch.eye(x.shape[1]) / PRIOR**2
    return torch.linalg.solve(precision, x.T @ y / NOISE**2).T, precision


@pytest.mark.parametrize("orthogonal", [True, False])
def test_temperature_1_recovers_the_exact_posterior(data, orthogonal):
    """With orthogonal inputs mean and spread; with correlated ones the exact mean, and sigma^2 = 1 / Lambda_ii."""
    x, y = data
    if orthogonal:
        x = torch.linalg.qr(x).Q * torch.tensor([2.0, 4.0, 6.0])
        y = x @ torch.tensor([[2.0], [-1.0], [0.0]]) + NOISE * torch.randn(40, 1)
    mean, precision = exact_posterior(x, y)
    net = linear()
    elbo = objective(x, estimator="local", samples=32)
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    weight = net.posterior["weight"]
    means, sigmas = [], []
    for _ in range(2000):
        optimizer.zero_grad()
        elbo.backward(net, x, y)
        optimizer.step()
        means.append(weight.mu.detach().clone())
        sigmas.append(weight.sigma.detach()[0])
    settled = slice(1000, None)  # the average over many steps takes out what is left of the gradient's noise
    torch.testing.assert_close(torch.stack(means)[settled].mean(0), mean, rtol=0, atol=0.01)
    torch.testing.assert_close(torch.stack(sigmas)[settled].mean(0), precision.diagonal().rsqrt(), rtol=0.03, atol=0)


def test_the_bound_is_tight_at_the_exact_posterior(data):
    """N times the objective is then -log p(data), a number that no hand-set factor on either term would give."""
    x, y = data
    x = torch.linalg.qr(x).Q * 3
    mean, precision = exact_posterior(x, y)
    net = linear()
    with torch.no_grad():
        net.posterior["weight"].mu.copy_(mean)
    net.posterior["weight"].set_sigma(precision.diagonal().rsqrt().unsqueeze(0))
    evidence = torch.distributions.MultivariateNormal(
        torch.zeros(40), PRIOR**2 * x @ x.T + NOISE**2 * torch.eye(40)
    ).log_prob(y.squeeze(1))
    losses = torch.stack([objective(x, samples=50)(net, x, y).loss.detach() for _ in range(200)])
    assert_mean(len(x) * losses, -evidence)


def test_temperature_and_size_weigh_the_kl_and_nothing_else(double):
    net = to_bayesian(nn.Linear(3, 2))
    x, y = torch.randn(5, 3), torch.randint(2, (5,))

    def terms(**options):
        return ELBO(prior=Normal(), generator=torch.Generator().manual_seed(0), **options)(net, x, y)

    cold, warm, large = terms(num_examples=10, temperature=0.1), terms(num_examples=10), terms(num_examples=1000)
    for t in (cold, warm, large):
        assert torch.equal(t.nll, warm.nll)
        assert torch.equal(t.kl, warm.kl)
    torch.testing.assert_close((warm.loss - warm.nll).detach(), warm.kl / 10)
    torch.testing.assert_close((cold.loss - cold.nll).detach(), warm.kl / 100)
    torch.testing.assert_close((large.loss - large.nll).detach(), warm.kl / 1000)
    nothing = terms(num_examples=10, temperature=0)
    assert nothing.kl is None
    assert torch.equal(nothing.loss, warm.nll)


def test_more_prior_samples_lower_the_variance_of_the_prior_term_alone(double):
    net = to_bayesian(nn.Linear(20, 10), init_std_ratio=2.0)
    x, y = torch.randn(5, 20), torch.randint(10, (5,))
    spread = {}
    for count in (1, 16):
        elbo = ELBO(10, ScaleMixture(0.5, 1.0, 0.1), samples=1, prior_samples=count)
        spread[count] = torch.stack([elbo(net, x, y).kl for _ in range(300)]).std()
    assert 3 < spread[1] / spread[16] < 5.3  # the square root of 16 is 4


def test_a_likelihood_of_ones_own_can_be_passed(double):
    net = to_bayesian(nn.Linear(3, 1))
    x, y = torch.randn(5, 3), torch.rand(5, 1)
    bernoulli = nn.functional.binary_cross_entropy_with_logits
    terms = ELBO(5, Normal(), bernoulli, samples=4, estimator="local").backward(net, x, y)
    assert terms.loss.isfinite()
    assert all(p.grad.abs().sum() > 0 for p in net.parameters())


def test_gaussian_likelihood_is_torchs_own(double):
    output, target = torch.randn(6, 2, 3), torch.randn(6, 2, 3)
    expected = -torch.distributions.Normal(output, 0.3).log_prob(target).sum() / 6
    torch.testing.assert_close(GaussianLikelihood(0.3)(output, target), expected)
    with pytest.raises(ValueError, match="do not fit"):
        GaussianLikelihood()(output, target[:, :1])
    with pytest.raises(ValueError, match="above 0"):
        GaussianLikelihood(0.0)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"num_examples": 0}, ValueError, "training examples"),
        ({"num_examples": 1.5}, TypeError, "whole number"),
        ({"num_examples": 5, "temperature": -1}, ValueError, "temperature"),
        ({"num_examples": 5, "temperature": math.nan}, ValueError, "temperature"),
        ({"num_examples": 5, "samples": 0}, ValueError, "samples"),
        ({"num_examples": 5, "prior_samples": 0}, ValueError, "prior_samples"),
        ({"num_examples": 5, "estimator": "best"}, ValueError, "weights, local, flipout"),
        ({"num_examples": 5, "prior": "normal"}, TypeError, "Prior"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(options, error, word):
    with pytest.raises(error, match=word):
        ELBO(**options)


@pytest.mark.parametrize("prior", [Normal(0.3), ScaleMixture(0.5, 1.0, 0.1)])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_the_value_of_the_kl_the_gradients_are_the_same(estimator, prior):
    net, x, y = to_bayesian(nn.Linear(3, 2)), torch.randn(5, 3), torch.randint(2, (5,))
    found = []
    for name in ("backward", "add_gradients"):
        net.zero_grad()
        elbo = ELBO(9, prior, samples=2, estimator=estimator, generator=torch.Generator().manual_seed(3))
        value = getattr(elbo, name)(net, x, y)
        found.append((value, [p.grad.clone() for p in net.parameters()]))
    (terms, grads), (nll, again) = found
    assert torch.equal(terms.nll, nll)
    assert terms.kl > 0
    assert all(torch.equal(a, b) for a, b in zip(grads, again, strict=True))


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
def test_an_empty_batch_is_refused(estimator):
    net, elbo = to_bayesian(nn.Linear(4, 3)), ELBO(10, samples=2, estimator=estimator)
    x, y = torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)
    for objective in (elbo, elbo.backward, elbo.add_gradients):
        with pytest.raises(ValueError, match="the batch is empty"):
            objective(net, x, y)
