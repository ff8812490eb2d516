"""Likelihoods against torch.distributions, exact Hessians and problems that are solved in closed form."""

import doctest
import inspect
import math
import pickle

import pytest
import torch
from torch import distributions, nn

from ucb.bayes import (
    ELBO,
    Bernoulli,
    Categorical,
    GaussianLikelihood,
    HeteroscedasticGaussian,
    LearntGaussian,
    Likelihood,
    Normal,
    Poisson,
    PredictiveMoments,
    as_likelihood,
    cross_entropy,
    elbo,
    forward,
    gaussians,
    mean_forward,
    predict,
    to_bayesian,
)
from ucb.bayes.curvature import class_roots
from ucb.optim import UCB, UCBNG, param_groups

SIGMAS = 4.5
"""Standard errors that a mean may be away from what it should be."""


def learnt(*scales):
    """Noise of which every output has its own."""
    noise = LearntGaussian(len(scales) or None)
    with torch.no_grad():
        noise.log_scale.copy_(torch.tensor(scales or 0.7).log())
    return noise


def halves(output):
    mean, log_variance = output.chunk(2, 1)
    return distributions.Normal(mean, (log_variance / 2).exp())


CASES = {
    "classes": (Categorical, lambda z: distributions.Categorical(logits=z)),
    "numbers": (lambda: GaussianLikelihood(0.3), lambda z: distributions.Normal(z, 0.3)),
    "learnt noise": (learnt, lambda z: distributions.Normal(z, 0.7)),
    "learnt noises": (
        lambda: learnt(0.2, 0.5, 1.0, 2.0),
        lambda z: distributions.Normal(z, torch.tensor([0.2, 0.5, 1.0, 2.0])),
    ),
    "noise of the input": (HeteroscedasticGaussian, halves),
    "labels": (Bernoulli, lambda z: distributions.Bernoulli(logits=z)),
    "counts": (Poisson, lambda z: distributions.Poisson(z.exp())),
}
OUTPUTS = 4
each = pytest.mark.parametrize("kind", CASES)


def case(kind, *shape):
    """Return a likelihood, outputs, and targets that were drawn from them."""
    make, distribution = CASES[kind]
    output = torch.randn(*shape)
    return make(), output, distribution(output)


def assert_mean(draws, expected):
    error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - expected).abs() <= SIGMAS * error + 1e-12).all(), (draws.mean(0), expected, error)


@each
def test_the_nll_is_that_of_torchs_distributions(kind, double):
    likelihood, output, reference = case(kind, 6, OUTPUTS)
    target = reference.sample()
    torch.testing.assert_close(likelihood(output, target), -reference.log_prob(target).sum() / 6)


@pytest.mark.parametrize("kind", sorted(set(CASES) - {"classes", "learnt noises"}))
@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 2, 3)])
def test_outputs_may_have_any_shape(kind, shape, double):
    """Targets [rows] fit outputs [rows] and [rows, 1]: they are never spread over all pairs of rows."""
    if kind == "noise of the input":
        shape = (6, 2 * (shape[1:] or (1,))[0], *shape[2:])
    likelihood, output, reference = case(kind, *shape)
    target = reference.sample()
    expected = -reference.log_prob(target).sum() / 6
    torch.testing.assert_close(likelihood(output, target), expected)
    said = likelihood.summarise(output.unsqueeze(0))
    torch.testing.assert_close(said.mean, reference.mean)
    if target.shape == (6, 1):
        torch.testing.assert_close(likelihood(output, target[:, 0]), expected)
        assert likelihood.score(said, target[:, 0]) == likelihood.score(said, target)


@each
def test_gradients_agree_with_finite_differences(kind, double):
    likelihood, output, reference = case(kind, 5, OUTPUTS)
    target = reference.sample()
    assert torch.autograd.gradcheck(lambda z: likelihood(z, target), output.requires_grad_())
    if isinstance(likelihood, LearntGaussian):
        (gradient,) = torch.autograd.grad(likelihood(output, target), likelihood.log_scale)
        with torch.no_grad():
            for index, found in enumerate(gradient.flatten()):
                around = []
                for step in (1e-5, -2e-5, 1e-5):
                    likelihood.log_scale.view(-1)[index] += step
                    around.append(likelihood(output, target))
                torch.testing.assert_close(found, (around[0] - around[1]) / 2e-5, rtol=1e-6, atol=1e-8)


def hessian(likelihood, output):
    """The Hessian of one row's NLL, in the mean over targets; of all but one likelihood it is the same for all."""
    if isinstance(likelihood, HeteroscedasticGaussian):  # a quadratic in the target: two points give its exact mean
        reference = halves(output[None])
        targets = [reference.mean - reference.stddev, reference.mean + reference.stddev]
    elif isinstance(likelihood, Categorical):
        targets = [torch.tensor([0]), torch.tensor([2])]
    else:
        targets = [torch.zeros(1, len(output)), torch.ones(1, len(output))]
    found = [torch.autograd.functional.hessian(lambda z, y=y: likelihood(z[None], y), output) for y in targets]
    if not isinstance(likelihood, HeteroscedasticGaussian):
        torch.testing.assert_close(*found)
    return sum(found) / len(found)


@each
def test_squared_gradients_of_the_roots_are_the_hessian(kind, double):
    likelihood, outputs, _ = case(kind, 3, OUTPUTS)
    for output in outputs:
        jacobian = torch.autograd.functional.jacobian(lambda z: likelihood.roots(z[None])[0], output)
        torch.testing.assert_close(jacobian.T @ jacobian, hessian(likelihood, output))


def exact_curvature(net, x, likelihood):
    """diag(J^T H J) of every row, for every mean, from whole Jacobians and Hessians."""
    means = {name: gaussian.mu for name, gaussian in gaussians(net)}
    found = {name: torch.zeros(len(x), *mu.shape) for name, mu in means.items()}
    for place, row in enumerate(x):
        output = mean_forward(net, row[None])[0]
        rows = [torch.autograd.grad(z, list(means.values()), retain_graph=True) for z in output]
        h = hessian(likelihood, output.detach())
        for index, name in enumerate(means):
            jacobian = torch.stack([gradients[index] for gradients in rows]).flatten(1)
            found[name][place] = ((h @ jacobian) * jacobian).sum(0).view_as(means[name])
    return found


def tanh_net(inputs=3, outputs=OUTPUTS):
    return to_bayesian(nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, outputs)))


@each
def test_the_roots_give_a_net_the_exact_gauss_newton_diagonal(kind, double):
    likelihood, net, x = CASES[kind][0](), tanh_net(), torch.randn(4, 3)
    roots = ELBO(4, likelihood=likelihood).curvature_roots
    found = {name: torch.zeros_like(g.mu) for name, g in gaussians(net)}
    for value in roots(mean_forward(net, x)).flatten():
        for name, gradient in zip(
            found, torch.autograd.grad(value, [g.mu for _, g in gaussians(net)], retain_graph=True), strict=True
        ):
            found[name] += gradient**2
    for name, expected in exact_curvature(net, x, likelihood).items():
        torch.testing.assert_close(found[name], expected.sum(0))


@each
def test_ucb_ng_learns_and_measures_the_curvature_of_any_likelihood(kind, double):
    """Each of 64 rows is seen 8 times, and the spread of its square is at most sqrt(2) times its mean."""
    make, distribution = CASES[kind]
    x, likelihood, net = torch.randn(64, 3), make(), tanh_net()
    y = distribution(2 * forward(tanh_net(), x)[0]).sample()
    objective = ELBO(64, likelihood=likelihood, temperature=0, samples=4, estimator="local")
    optimizer = UCBNG(param_groups(net), 64, lr=0.01)
    with torch.no_grad():
        before = likelihood(mean_forward(net, x), y)
    for _ in range(60):
        optimizer.zero_grad()
        with optimizer.skip_rho_gradients():
            objective.backward(net, x, y)
        optimizer.observe(objective, net, x)
        optimizer.step()
    with torch.no_grad():
        assert likelihood(mean_forward(net, x), y) < before - 0.01
    optimizer.measure(objective, net, x, passes=8 * 64)
    exact = exact_curvature(net, x, likelihood)
    for name, gaussian in gaussians(net):
        error = (2 / 8 * exact[name].square().sum(0)).sqrt() / 64
        away = (optimizer.state[gaussian.mu]["curvature"] - exact[name].mean(0)).abs()
        assert (away <= SIGMAS * error).all(), (name, away / error)


@pytest.mark.parametrize("kind", sorted(set(CASES) - {"classes"}))
def test_the_variance_of_a_prediction_is_that_of_targets_drawn_from_it(kind, double):
    """Targets of 20 weight samples, 20000 of each: mean and variance, and both parts of it, have these errors."""
    likelihood, draws = CASES[kind][0](), 20_000
    outputs = torch.randn(20, 3, OUTPUTS)
    y = torch.stack([CASES[kind][1](output).sample((draws,)) for output in outputs])
    said = likelihood.summarise(outputs)
    y = y.flatten(0, 1)
    assert_mean(y, said.mean)
    assert_mean((y - said.mean).square(), said.aleatoric + said.epistemic)
    torch.testing.assert_close(said.std.square(), said.aleatoric + said.epistemic)
    y = y.unflatten(0, (20, draws))
    within = (y - y.mean(1, keepdim=True)).square() * draws / (draws - 1)
    assert_mean(within.mean(0), said.aleatoric)
    assert (said.epistemic > 0).all()


def test_one_weight_sample_leaves_no_doubt_about_the_weights():
    net, x = to_bayesian(nn.Linear(3, 2), init_std_ratio=1.0), torch.randn(7, 3)
    said = predict(net, x, 0, likelihood=GaussianLikelihood(0.5), batch_size=2)
    assert torch.equal(said.epistemic, torch.zeros(7, 2))
    torch.testing.assert_close(said.mean, mean_forward(net, x))
    torch.testing.assert_close(said.std, torch.full((7, 2), 0.5))
    assert (predict(net, x, 5, likelihood=GaussianLikelihood(0.5)).epistemic > 0).all()


NOISE, PRIOR = 0.5, 0.8


@pytest.fixture
def solved(double):
    """A linear model with orthogonal inputs: the exact posterior is one Gaussian for each weight."""
    x = torch.linalg.qr(torch.randn(30, 4)).Q * torch.tensor([1.0, 2.0, 4.0, 8.0])
    y = x @ torch.tensor([[1.0], [-1.0], [0.5], [0.0]]) + NOISE * torch.randn(30, 1)
    precision = PRIOR**-2 + x.square().sum(0) / NOISE**2
    posterior = distributions.Normal((x * y).sum(0) / NOISE**2 / precision, precision.rsqrt())
    covariance = NOISE**2 * torch.eye(30) + PRIOR**2 * x @ x.T
    return x, y, posterior, distributions.MultivariateNormal(torch.zeros(30), covariance).log_prob(y[:, 0])


def linear_with(mean, sigma):
    net = to_bayesian(nn.Linear(4, 1, bias=False))
    with torch.no_grad():
        net.posterior["weight"].mu.copy_(mean[None])
    net.posterior["weight"].set_sigma(sigma[None])
    return net


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
@pytest.mark.parametrize("away", [0.0, 1.0])
def test_the_elbo_is_the_evidence_plus_the_divergence_from_the_exact_posterior(solved, estimator, away):
    """N * loss = -log p(y) + KL(q || posterior) for any q, so it is least, and its gradient 0, at the posterior."""
    x, y, posterior, evidence = solved
    q = distributions.Normal(posterior.mean + away * posterior.stddev, posterior.stddev * math.exp(away / 2))
    net = linear_with(q.mean, q.stddev)
    objective = ELBO(30, Normal(PRIOR), GaussianLikelihood(NOISE), samples=8, estimator=estimator)
    losses, gradients = [], []
    for _ in range(200):
        net.zero_grad()
        losses.append(30 * objective.backward(net, x, y).loss.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    assert_mean(torch.stack(losses), distributions.kl_divergence(q, posterior).sum() - evidence)
    if not away:
        assert_mean(torch.stack(gradients), torch.zeros(8))


def test_predictions_have_the_exact_posteriors_mean_and_variance(solved):
    _, _, posterior, _ = solved
    net, draws = linear_with(posterior.mean, posterior.stddev), 20_000
    new = torch.randn(5, 4)
    said = predict(net, new, draws, likelihood=GaussianLikelihood(NOISE))
    variance = new.square() @ posterior.variance
    assert ((said.mean[:, 0] - new @ posterior.mean).abs() < SIGMAS * (variance / draws).sqrt()).all()
    torch.testing.assert_close(said.epistemic[:, 0], variance, rtol=SIGMAS * (2 / draws) ** 0.5, atol=0)
    torch.testing.assert_close(said.aleatoric, torch.full((5, 1), NOISE**2))


@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
@pytest.mark.parametrize("stack", [True, False])
def test_the_noise_that_is_learnt_gets_its_gradient_from_every_estimator(solved, estimator, stack):
    """Its objective is least where scale^2 is the mean square error under the posterior's weights, in closed form."""
    x, y, posterior, _ = solved
    net = linear_with(posterior.mean, posterior.stddev)
    error = (y[:, 0] - x @ posterior.mean).square() + x.square() @ posterior.variance
    gradients = {}
    for scale in (float(error.mean().sqrt()), 1.0):
        noise = LearntGaussian(scale=scale)
        objective = ELBO(30, Normal(PRIOR), noise, samples=4, estimator=estimator, stack=stack)
        found = []
        for _ in range(150):
            noise.zero_grad()
            objective.backward(net, x, y)
            found.append(noise.log_scale.grad.clone())
        gradients[scale] = torch.stack(found)
        assert_mean(gradients[scale], 1 - error.mean() / scale**2)
    assert gradients[1.0].mean() > 0.1


def test_noise_of_each_output_is_learnt_with_the_package_s_optimisers(double):
    """4000 rows: a spread has a relative standard error of 1 / sqrt(2 * 4000), a ninetieth."""
    truth = torch.tensor([0.3, 0.5, 1.0])
    x = torch.randn(4000, 2)
    y = x @ torch.randn(2, 3) + truth * torch.randn(4000, 3)
    net, noise = to_bayesian(nn.Linear(2, 3), 0.01), LearntGaussian(outputs=3)
    groups = [*param_groups(net), *param_groups(noise, "noise.")]
    optimizer = UCB(groups, lr=0.03)
    objective = ELBO(4000, Normal(10.0), noise, estimator="local")
    for _ in range(400):
        optimizer.zero_grad()
        objective.backward(net, x, y)
        optimizer.step()
    torch.testing.assert_close(noise.scale, truth, rtol=SIGMAS / 8000**0.5, atol=0)
    said = predict(net, x, 50, likelihood=noise)
    torch.testing.assert_close(said.aleatoric, noise.scale.square().expand(4000, 3))


def test_noise_that_depends_on_the_input_is_recovered(double):
    """y = 0.5 + 2 x + noise of log-variance -2 + 1.5 x, against standard errors from the Fisher information."""
    x = 2 * torch.rand(2000, 1) - 1
    mean, log_variance = 0.5 + 2 * x, -2 + 1.5 * x
    y = mean + (log_variance / 2).exp() * torch.randn(2000, 1)
    net = to_bayesian(nn.Linear(1, 2))
    objective = ELBO(2000, Normal(10.0), HeteroscedasticGaussian(), samples=4, estimator="local")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    iterates = []
    for _ in range(500):
        optimizer.zero_grad()
        objective.backward(net, x, y)
        optimizer.step()
        iterates.append(torch.stack([net.posterior["bias"].mu, net.posterior["weight"].mu[:, 0]], 1).detach())
    found = torch.stack(iterates[-200:]).mean(0)
    phi = torch.cat([torch.ones_like(x), x], 1)
    information = torch.stack([phi.T @ (phi / log_variance.exp()), phi.T @ phi / 2])
    errors = torch.linalg.inv(information).diagonal(dim1=1, dim2=2).sqrt()
    assert ((found - torch.tensor([[0.5, 2.0], [-2.0, 1.5]])).abs() < SIGMAS * errors).all(), (found, errors)
    said = predict(net, x, 20, likelihood=objective.likelihood)
    torch.testing.assert_close(said.aleatoric, log_variance.exp(), rtol=0.25, atol=0)
    assert (said.epistemic < 0.05 * said.aleatoric).all()


def moments(mean):
    return PredictiveMoments(mean, torch.ones_like(mean), torch.zeros_like(mean))


def test_r_squared_is_the_squared_correlation_of_least_squares_and_pools_outputs(double):
    x, y = torch.randn(50, 1), torch.randn(50, 2) * torch.tensor([1.0, 3.0]) + 7
    phi = torch.cat([torch.ones(50, 1), x], 1)
    fitted = phi @ torch.linalg.lstsq(phi, y).solution
    score = GaussianLikelihood().score
    for k in range(2):
        expected = torch.corrcoef(torch.stack([fitted[:, k], y[:, k]]))[0, 1] ** 2
        assert score(moments(fitted[:, k]), y[:, k]) == pytest.approx(float(expected))
    residual, total = (y - fitted).square().sum(), y.var(0, correction=0).sum() * 50
    assert score(moments(fitted), y) == pytest.approx(float(1 - residual / total))
    assert score(moments(y), y) == 1
    assert score(moments(y.mean(0).expand_as(y)), y) == pytest.approx(0, abs=1e-12)
    assert score(moments(-y), y) < -1
    assert Poisson().score(moments(fitted), y) == score(moments(fitted), y)
    constant = torch.full((3, 1), 0.1)
    assert score(moments(constant), constant) == 1
    assert score(moments(constant + 1e-9), constant) == 0


def test_labels_are_scored_by_the_share_that_is_right():
    logits = torch.tensor([[[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]])
    assert Categorical().score(Categorical().summarise(logits), torch.tensor([0, 1, 1, 0])) == 0.75
    said = Bernoulli().summarise(torch.tensor([[[2.0, -1.0], [-3.0, 0.5]]]))
    assert Bernoulli().score(said, torch.tensor([[1, 0], [1, 1]])) == 0.75
    assert Bernoulli().score(said, torch.tensor([[0.9, 0.1], [0.2, 0.7]])) == 1


@each
def test_a_net_with_as_many_outputs_as_the_likelihood_asks_for_learns(kind):
    make, distribution = CASES[kind]
    target = distribution(torch.randn(200, OUTPUTS)).sample()
    likelihood, x = make(), torch.randn(200, 3)
    outputs = likelihood.outputs_for(target)
    assert outputs == OUTPUTS
    net = to_bayesian(nn.Linear(3, outputs))
    terms = ELBO(200, likelihood=likelihood).backward(net, x, target)
    assert terms.loss.isfinite()
    assert likelihood.score(predict(net, x, 3, likelihood=likelihood), target) <= 1


def test_targets_of_one_number_a_row_need_one_output_or_two():
    target = torch.rand(5)
    assert GaussianLikelihood().outputs_for(target) == Bernoulli().outputs_for(target) == 1
    assert HeteroscedasticGaussian().outputs_for(target) == 2
    assert Poisson().outputs_for(torch.zeros(5, 2, 3)) == 6
    assert Categorical().outputs_for(torch.tensor([0, 4, 1])) == 5


NAN = math.nan
BAD = [
    (GaussianLikelihood(), [[1.0], [2.0]], [1.0, 2.0, 3.0], "do not fit"),
    (GaussianLikelihood(), [1.0, 2.0], [[1.0], [2.0]], "do not fit"),
    (GaussianLikelihood(), [[1.0], [2.0]], [1.0, NAN], "finite numbers, not nan"),
    (LearntGaussian(), [[1.0], [2.0]], [1.0, math.inf], "finite numbers, not inf"),
    (LearntGaussian(3), [[1.0], [2.0]], [1.0, 2.0], "noise scales for 3 outputs"),
    (HeteroscedasticGaussian(), [[1.0, 2.0, 3.0]], [[1.0]], "two numbers for each"),
    (HeteroscedasticGaussian(), [1.0, 2.0], [1.0], "two numbers for each"),
    (HeteroscedasticGaussian(), [[1.0, 2.0]], [[1.0, 2.0]], "do not fit"),
    (HeteroscedasticGaussian(), [[1.0, 2.0]], [NAN], "finite numbers, not nan"),
    (Bernoulli(), [1.0, 2.0], [0, 2], "0, 1 or a probability between them, not 2"),
    (Bernoulli(), [1.0, 2.0], [-1.0, 1.0], "not -1"),
    (Bernoulli(), [1.0, 2.0], [NAN, 1.0], "not nan"),
    (Bernoulli(), [[1.0, 2.0]], [1.0], "do not fit"),
    (Poisson(), [1.0, 2.0], [1.5, 1.0], "whole numbers of 0 or above, not 1.5"),
    (Poisson(), [1.0, 2.0], [1, -1], "not -1"),
    (Poisson(), [1.0, 2.0], [math.inf, 1.0], "not inf"),
    (Poisson(), [1.0, 2.0], [NAN, 1.0], "not nan"),
    (Categorical(), [[1.0, 2.0]], [2], "class indices from 0 to 1, not 2"),
    (Categorical(), [[1.0, 2.0]], [-100], "not -100"),
    (Categorical(), [[1.0, 2.0]], [[1]], "do not fit"),
]


@pytest.mark.parametrize(("likelihood", "output", "target", "words"), BAD)
def test_targets_that_cannot_be_are_refused_in_one_sentence(likelihood, output, target, words):
    with pytest.raises(ValueError, match=words) as caught:
        likelihood(torch.tensor(output), torch.tensor(target))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64])
def test_targets_may_be_of_any_type_that_holds_them(dtype):
    output, target = torch.randn(4, 2), torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]])
    for likelihood in (Bernoulli(), Poisson()):
        found = likelihood(output, target.to(dtype))
        torch.testing.assert_close(found, likelihood(output, target.float()))


def test_labels_and_scores_need_whole_numbers_and_rows():
    with pytest.raises(TypeError, match="whole numbers"):
        Categorical()(torch.randn(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="no targets"):
        Categorical().outputs_for(torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="0 or above, not -1"):
        Categorical().outputs_for(torch.tensor([3, -1]))
    with pytest.raises(ValueError, match="no targets"):
        Bernoulli().score(moments(torch.zeros(0)), torch.zeros(0))
    with pytest.raises(ValueError, match="no targets"):
        GaussianLikelihood().score(moments(torch.zeros(0, 2)), torch.zeros(0, 2))
    with pytest.raises(ValueError, match="do not fit"):
        Categorical().score(Categorical().summarise(torch.zeros(1, 4, 2)), torch.zeros(4, 1))
    for wrong in ({"outputs": 0}, {"scale": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LearntGaussian(**wrong)


@each
def test_no_values_are_read_off_a_cpu(kind):
    """A tensor without values stands for one on a GPU, where to read a value would be to wait for it."""
    likelihood, output, reference = case(kind, 6, OUTPUTS)
    target = reference.sample()
    assert likelihood.to("meta") if isinstance(likelihood, nn.Module) else True
    found = likelihood(output.to("meta"), target.to("meta"))
    assert found.shape == ()
    assert likelihood.roots(output.to("meta")).is_meta


def test_a_plain_function_is_a_likelihood_for_the_elbo_but_cannot_predict():
    net, x = to_bayesian(nn.Linear(3, 2)), torch.randn(5, 3)

    def absolute(output, target):
        return (output - target).abs().sum() / len(output)

    assert ELBO(5, likelihood=absolute).backward(net, x, torch.randn(5, 2)).loss.isfinite()
    with pytest.raises(TypeError, match="Likelihood"):
        predict(net, x, likelihood=absolute)
    assert not isinstance(absolute, Likelihood)
    with pytest.raises(TypeError, match="roots"):
        _ = ELBO(5, likelihood=absolute).curvature_roots


def test_classes_are_as_before_under_every_name():
    """The default stays the plain function, which predicts and is curved like ``Categorical``."""
    net, x, y = to_bayesian(nn.Linear(3, 4)), torch.randn(9, 3), torch.arange(9) % 4
    assert ELBO(5).likelihood is cross_entropy
    assert as_likelihood(cross_entropy) == Categorical()
    assert torch.equal(cross_entropy(mean_forward(net, x), y), Categorical()(mean_forward(net, x), y))
    assert ELBO(5).curvature_roots is class_roots
    said = [
        predict(net, x, 5, generator=torch.Generator().manual_seed(0), **options)
        for options in ({}, {"likelihood": cross_entropy}, {"likelihood": Categorical()})
    ]
    for other in said[1:]:
        assert all(torch.equal(a, b) for a, b in zip(said[0], other, strict=True))


@each
def test_likelihoods_travel_with_an_objective(kind):
    make, _ = CASES[kind]
    likelihood = make()
    assert isinstance(likelihood, Likelihood)
    assert as_likelihood(likelihood) is likelihood
    there = pickle.loads(pickle.dumps(ELBO(5, likelihood=likelihood))).likelihood
    if isinstance(likelihood, nn.Module):
        assert torch.equal(there.log_scale, likelihood.log_scale)
    else:
        assert there == likelihood
    assert pickle.loads(pickle.dumps(ELBO(5))).likelihood is cross_entropy
    assert elbo.GaussianLikelihood is GaussianLikelihood


def test_the_example_of_learnt_noise_runs():
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(LearntGaussian), {}, "LearntGaussian", None, None)
    assert doctest.DocTestRunner().run(test).failed == 0
