"""VCL and VCL-GNG against exact sequential Bayes, and what they carry from task to task."""

import math

import pytest
import torch
from torch import nn

from tests.engine.runs import small_run
from tests.methods.data import Given
from ucb.bayes import GaussianLikelihood, Normal, gaussians
from ucb.methods import TaskInfo
from ucb.methods.vcl import VCL, VCLGNG, VCLGNGSettings, VCLSettings
from ucb.nets import HeadedNet

NOISE = 0.5
SIZES = (60, 20, 100)


def regression(kind, settings):
    """A method that learns one linear layer, whose outputs have Gaussian noise."""

    class Regression(kind):
        def nll(self, logits, y):
            return GaussianLikelihood(NOISE)(logits, y)

    net = HeadedNet(nn.Linear(4, 1, bias=False), 1, [1])
    net.heads[0] = nn.Identity()
    return Regression(net, settings, torch.Generator().manual_seed(0))


def orthogonal_task(rows, task):
    """Inputs with orthogonal columns of different size: the exact posterior is diagonal, so mean field can meet it."""
    generator = torch.Generator().manual_seed(task)
    size = torch.tensor([0.5, 1.0, 2.0, 4.0]) * math.sqrt(rows)
    x = torch.linalg.qr(torch.randn(rows, 4, generator=generator)).Q * size
    weights = torch.tensor([[1.0], [-2.0], [0.5], [1.0]]) + 0.05 * torch.randn(4, 1, generator=generator)
    return x, x @ weights + NOISE * torch.randn(rows, 1, generator=generator)


def train(method, x, y, rates):
    for rate in rates:
        method.set_rate(rate)
        for _ in range(400):
            method.learn(x, y)


@pytest.mark.parametrize(("kind", "settings"), [(VCL, VCLSettings), (VCLGNG, VCLGNGSettings)])
def test_three_tasks_give_the_exact_sequential_posterior(double, kind, settings):
    """Means within 0.1 exact standard deviations, spreads within 3 %."""
    method = regression(kind, settings(lr=0.03, init_std_ratio=0.05, prior_sigma=0.7, samples=8))
    weight = method.net.trunk.posterior["weight"]
    precision, mean = torch.full((4,), 0.7**-2), torch.zeros(4)
    for index, rows in enumerate(SIZES):
        x, y = orthogonal_task(rows, index)
        method.begin_task(TaskInfo(index, rows, 0, range(1)))
        for phase in range(len(method.phases())):
            if phase > 0:
                method.begin_phase(phase, Given(x, y))
            train(method, x, y, (0.03, 0.01, 0.003, 0.001))
        before = weight.sigma.detach().clone()
        method.end_task(Given(x, y))
        assert torch.equal(weight.sigma, before)
        data = x.square().sum(0) / NOISE**2
        mean = (precision * mean + (x.T @ y).squeeze(1) / NOISE**2) / (precision + data)
        precision = precision + data
        assert ((weight.mu[0] - mean) * precision.sqrt()).abs().max() < 0.1
        torch.testing.assert_close(weight.sigma[0].detach(), precision.rsqrt(), rtol=0.03, atol=0)


@pytest.mark.parametrize(("kind", "settings"), [(VCL, VCLSettings), (VCLGNG, VCLGNGSettings)])
def test_the_first_task_begins_with_a_maximum_likelihood_fit(double, kind, settings):
    """No prior and no noise: the means become the least-squares ones, and the spreads stay where inference begins."""
    method = regression(kind, settings(lr=0.03, prior_sigma=0.01))
    weight = method.net.trunk.posterior["weight"]
    start = weight.sigma.detach().clone()
    x, y = orthogonal_task(30, 0)
    method.begin_task(TaskInfo(0, 30, 0, range(1)))
    assert method.phases() == (0.5, 0.5)
    train(method, x, y, (0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5))
    torch.testing.assert_close(weight.mu.detach(), torch.linalg.lstsq(x, y).solution.T, rtol=0, atol=1e-4)
    assert torch.equal(weight.sigma, start)
    method.begin_phase(1, Given(x, y))
    method.learn(x, y)
    assert (weight.sigma != start).all()
    method.end_task(Given(x, y))
    method.begin_task(TaskInfo(1, 30, 0, range(1)))
    assert method.phases() == (1.0,)
    assert not method.is_fitting


def test_the_trunk_remembers_and_a_new_head_does_not():
    run = small_run("vcl", prior_sigma=0.7)
    run.learn_task()
    prior = run.method.objective.prior
    for name, gaussian in gaussians(run.method.net):
        if name.startswith("trunk."):
            torch.testing.assert_close(prior.of(name).mean, gaussian.mu.detach())
            torch.testing.assert_close(prior.of(name).scale, gaussian.sigma.detach())
        else:
            assert isinstance(prior.of(name), Normal)
            assert (float(prior.of(name).mean), float(prior.of(name).scale)) == (0, 0.7)


def test_the_one_head_that_tasks_share_is_remembered():
    method = VCL(HeadedNet(nn.Linear(3, 4), 4, [2]), VCLSettings(), torch.Generator())
    x, y = torch.randn(10, 3), torch.randint(2, (10,))
    method.begin_task(TaskInfo(0, 10, 0, range(2)))
    method.learn(x, y)
    method.end_task(Given(x, y))
    head = method.net.heads[0].posterior["weight"]
    torch.testing.assert_close(method.objective.prior.of("heads.0.weight").mean, head.mu.detach())
    assert not any("heads" in name for name, _ in gaussians(method.net.trunk))


@pytest.mark.parametrize("name", ["vcl", "vcl-gng", "vcl-vadam"])
def test_the_new_head_learns_and_the_old_ones_rest(name):
    """Defect D4: a step of Adam's kind moves every weight of the new head, by about the base rate at most."""
    run, x, y = small_run(name), torch.randn(40, 8), torch.randint(2, (40,))
    for task in range(3):
        run.method.begin_task(TaskInfo(task, 40, task, range(2)))
        run.method.set_rate(0.02)
        before = {n: p.detach().clone() for n, p in run.method.net.heads.named_parameters() if n.endswith("mu")}
        run.method.learn(x, y)
        for key, parameter in run.method.net.heads.named_parameters():
            if key.endswith("mu"):
                step = (parameter - before[key]).abs()
                assert (step > 0).all() if key.startswith(f"{task}.") else (step == 0).all()
                assert step.square().mean().sqrt() < 1.01 * 0.02
        run.method.end_task(Given(x, y))


def test_the_prior_and_the_fit_are_in_the_state():
    run, fresh = small_run("vcl"), small_run("vcl", seed=5)
    run.method.begin_task(TaskInfo(0, 100, 0, range(2)))
    fresh.method.load_state_dict(run.method.state_dict())
    assert fresh.method.is_fitting
    run.learn_task()
    fresh.method.load_state_dict(run.method.state_dict())
    assert not fresh.method.is_fitting
    told = [m.objective.prior.of("trunk.1.weight") for m in (run.method, fresh.method)]
    assert torch.equal(told[0].mean, told[1].mean)
    assert torch.equal(told[0].scale, told[1].scale)


@pytest.mark.parametrize(
    ("options", "word"), [({"prior_sigma": 0}, "prior_sigma"), ({"fit": 1.0}, "fit"), ({"temperature": -1}, "temper")]
)
def test_bad_settings_are_refused(options, word):
    with pytest.raises(ValueError, match=word):
        VCLSettings(**options)
