"""VCL-Vadam: the posterior of one task is the prior of the next; the optimiser itself is tested in tests/optim."""

import pytest
import torch

from tests.methods.data import Given
from ucb.methods import TaskInfo
from ucb.methods.vcl import VCLVadam, VCLVadamSettings
from ucb.nets import mlp


def test_one_perturbed_gradient_of_the_likelihood_drives_a_step(double):
    """The method's step equals the formula at the very sample that was drawn."""
    method = VCLVadam(mlp((3,), [2], [4]), VCLVadamSettings(lr=0.01, temperature=0.5), torch.Generator().manual_seed(3))
    x, y = torch.randn(10, 3), torch.randint(2, (10,))
    method.begin_task(TaskInfo(0, 10, 0, range(2)))
    weight = method.net.trunk[1].posterior["weight"]
    before, delta = weight.mu.detach().clone(), 0.5 / 10 * weight.sigma.detach() ** -2
    nll = method.learn(x, y)
    slope = weight.mu.grad
    torch.testing.assert_close(weight.mu.detach(), before - 0.01 * (slope + delta * before) / (slope.abs() + delta))
    method.net.eval()
    assert nll != method.nll(method.net(x), y)  # it was not taken at the means


def test_the_next_task_starts_at_the_last_posterior_and_is_pulled_there():
    method = VCLVadam(mlp((3,), [2, 2], [4]), VCLVadamSettings(), torch.Generator().manual_seed(3))
    x, y = torch.randn(40, 3), torch.randint(2, (40,))
    method.begin_task(TaskInfo(0, 40, 0, range(2)))
    for _ in range(20):
        method.learn(x, y)
    weight = method.net.trunk[1].posterior["weight"]
    mu, sigma = weight.mu.detach().clone(), weight.sigma.detach().clone()
    method.end_task(Given(x, y))
    method.begin_task(TaskInfo(1, 7, 1, range(2)))
    state = method.optimizer.state[weight.mu]
    assert torch.equal(state["anchor"], mu)
    torch.testing.assert_close(state["precision"].rsqrt(), sigma)
    torch.testing.assert_close(weight.sigma.detach(), sigma)
    head = method.net.heads[1].posterior["weight"]
    assert (method.optimizer.state[head.mu]["anchor"] == 0).all()
    start = torch.full_like(head.mu, method.start["heads.1.weight"])
    torch.testing.assert_close(method.optimizer.state[head.mu]["precision"].rsqrt(), start)


def test_a_temperature_of_0_is_refused():
    with pytest.raises(ValueError, match="temperature"):
        VCLVadamSettings(temperature=0)
