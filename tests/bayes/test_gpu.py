"""The core on a CUDA device: the same mathematics as on a CPU, and nothing left behind on one of the two."""

import pytest
import torch
from torch import nn

from ucb.bayes import ELBO, Normal, ScaleMixture, forward, gaussians, predict, to_bayesian
from ucb.bayes.passes import Pass, run
from ucb.optim import UCB, UCBNG, Freeze, param_groups

pytestmark = pytest.mark.gpu
cuda = torch.device("cuda")


def net():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 20),
        nn.LayerNorm(20),
        nn.Linear(20, 5),
    )


@pytest.fixture(autouse=True)
def _exact():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def test_a_move_to_the_gpu_keeps_mean_and_spread_tied():
    twin = to_bayesian(net())
    before = {n: (g.mu.detach().clone(), g.sigma.detach().clone()) for n, g in gaussians(twin)}
    twin.to(cuda)
    for name, g in gaussians(twin):
        assert g.mu.is_cuda
        assert g.sigma.is_cuda
        torch.testing.assert_close(g.mu.cpu(), before[name][0])
        torch.testing.assert_close(g.sigma.cpu(), before[name][1])
        with torch.no_grad():
            g.rho += 1
        assert (g.sigma.cpu() > before[name][1]).all()


def test_a_gpu_answers_as_a_cpu_does_with_the_same_weights():
    twin = to_bayesian(net()).double().eval()
    x = torch.randn(6, 1, 8, 8).double()
    p = Pass("weights", 6, 4)
    on_cpu = run(twin, x, p)
    drawn = {name: p.drawn[g].to(cuda) for name, g in gaussians(twin)}
    twin.to(cuda)
    q = Pass("weights", 6, 4, drawn={g: drawn[name] for name, g in gaussians(twin)})
    torch.testing.assert_close(run(twin, x.to(cuda), q).cpu(), on_cpu)


@pytest.mark.parametrize("prior", [Normal(0.1), ScaleMixture(0.5, 1.0, 0.2)])
@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
@pytest.mark.parametrize("stack", [True, False])
def test_gradients_agree_with_the_cpus_in_expectation(prior, estimator, stack):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    means = []
    for device in ("cpu", cuda):
        twin = to_bayesian(plain, 0.5).to(device)
        elbo = ELBO(100, prior.to(device), samples=50, prior_samples=50, estimator=estimator, stack=stack)
        repeats = 20
        for _ in range(repeats):
            elbo.backward(twin, x.to(device), y.to(device))
        means.append(torch.cat([p.grad.flatten().cpu() / repeats for p in twin.parameters()]))
    prior.to("cpu")
    scale = means[0].abs().mean()
    assert (means[0] - means[1]).abs().mean() < 0.15 * scale


@pytest.mark.parametrize("make", [lambda g: UCB(g, 0.05, momentum=0.9), lambda g: UCBNG(g, 100, lr=0.05)])
def test_a_net_learns_on_the_gpu_and_frozen_weights_do_not(make):
    torch.manual_seed(0)
    twin = to_bayesian(net()).to(cuda)
    x = torch.randn(100, 1, 8, 8, device=cuda)
    y = (x.mean((1, 2, 3)) > 0).long()
    optimizer = make(param_groups(twin))
    masks = {g: torch.rand_like(g.mu) > 0.8 for _, g in gaussians(twin)}
    held = {g: (g.mu[m].clone(), g.rho[m].clone()) for g, m in masks.items()}
    Freeze(optimizer, masks)
    temperature = 0.0 if isinstance(optimizer, UCBNG) else 0.01
    elbo = ELBO(100, Normal(0.1).to(cuda), samples=4, temperature=temperature)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        losses.append(float(elbo.backward(twin, x, y).nll))
        if isinstance(optimizer, UCBNG):
            optimizer.observe(elbo, twin, x)
        optimizer.step()
    optimizer.consolidate()
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    for g, m in masks.items():
        assert torch.equal(g.mu[m], held[g][0])
        assert torch.equal(g.rho[m], held[g][1])
    said = predict(twin, x, 10)
    assert float((said.label == y).float().mean()) > 0.8


def test_a_generator_on_the_gpu_fixes_the_noise():
    twin = to_bayesian(net()).to(cuda).eval()
    x = torch.randn(4, 1, 8, 8, device=cuda)
    for estimator in ("weights", "local", "flipout"):
        a, b = (forward(twin, x, 3, estimator, generator=torch.Generator(cuda).manual_seed(1)) for _ in range(2))
        torch.testing.assert_close(a, b)
