"""What is timed as ours is a whole training step."""

import pytest
import torch
import torch.nn.functional as F

from tests.experiments.bench.small import MLP, RESNET
from ucb.bayes import gaussians
from ucb.experiments.bench import steps as ours
from ucb.experiments.bench.results import MEMORY_BAR, peak_memory

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("sizes", "estimator"), [(MLP, "weights"), (MLP, "local"), (MLP, "flipout"), (RESNET, "weights")]
)
def test_a_step_moves_mean_and_spread_of_every_weight_tensor(sizes, estimator, monkeypatch):
    made, convert = [], ours.to_bayesian
    monkeypatch.setattr(ours, "to_bayesian", lambda net: made.append(convert(net)) or made[-1])
    x, y = sizes.batch_on(CPU)
    work = ours.bayesian_step(sizes.net(), x, y, sizes, estimator, ours.mixture(), 2)
    before = {name: (g.mu.detach().clone(), g.rho.detach().clone()) for name, g in gaussians(made[0])}
    drawn = work.generator.get_state()
    work.step()
    assert not torch.equal(work.generator.get_state(), drawn)
    assert len(before) >= 4
    for name, g in gaussians(made[0]):
        assert not torch.equal(g.mu, before[name][0]), name
        assert not torch.equal(g.rho, before[name][1]), name


def test_the_engines_step_is_gradient_descent_on_batches_of_its_data():
    step = ours.EngineStep(MLP, "ord-ft", CPU)
    data, rate = step.steps.data.task.train, step.method.settings.lr
    pixels = (data.x.tensor.float() / 255 - 0.1307) / 0.3081
    parameters = [p.detach().clone().requires_grad_() for p in step.method.net.parameters()]
    for turn in range(MLP.batches + 1):  # one more than an epoch has: the order begins again
        rows = step.order[MLP.batch * (turn % MLP.batches) :][: MLP.batch]
        hidden = torch.relu(F.linear(pixels[rows].flatten(1), *parameters[:2]))
        loss = F.cross_entropy(F.linear(hidden, *parameters[2:]), data.y.tensor[rows])
        gradients = torch.autograd.grad(loss, parameters)
        parameters = [(p - rate * g).detach().requires_grad_() for p, g in zip(parameters, gradients, strict=True)]
        step()
    assert step.why_eager is None
    for p, q in zip(step.method.net.parameters(), parameters, strict=True):
        torch.testing.assert_close(p, q)


def test_weights_hold_less_than_six_times_mu_and_rho():
    assert peak_memory(ours.MLPSizes()) < MEMORY_BAR == 6
