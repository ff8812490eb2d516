"""Several runs at once against each run alone: on a GPU where there is one, else in Triton's interpreter."""

import copy

import pytest
import torch
from torch import nn

from tests.bayes.triton_tests import DEVICE, MARKS
from tests.engine.runs import small_run
from ucb.bayes import ELBO, ScaleMixture, gaussians, to_bayesian
from ucb.bayes.curvature import class_roots, signed_gradients
from ucb.bayes.kernels import classes, fused, launch, noise, seeds
from ucb.bayes.runs import add_elbo_gradients_of_runs, losses_of_runs, signed_gradients_of_runs
from ucb.bayes.travel import travel_like
from ucb.engine.stack import Stack

pytestmark = MARKS
RUNS = 3


@pytest.fixture(autouse=True)
def _kernels_everywhere(monkeypatch):
    """The interpreter serves on a CPU, where PyTorch would; and products are exact."""
    monkeypatch.setattr(launch, "available", lambda device: True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def nets(bayesian=True):
    torch.manual_seed(0)
    made = [nn.Sequential(nn.Linear(6, 70), nn.ReLU(), nn.Linear(70, 3)).to(DEVICE) for _ in range(RUNS)]
    return [to_bayesian(net, 0.5) for net in made] if bayesian else made


def stacked(alone):
    one = copy.deepcopy(alone[0])
    for parameter, *each in zip(one.parameters(), *(net.parameters() for net in alone), strict=True):
        parameter.data = torch.stack([p.data for p in each])
    return one


def batch():
    torch.manual_seed(1)
    return torch.randn(RUNS, 5, 6, device=DEVICE), torch.randint(3, (RUNS, 5), device=DEVICE)


def generators():
    return [torch.Generator(DEVICE).manual_seed(seed) for seed in range(RUNS)]


def same(alone, one, least=0):
    for r, net in enumerate(alone):
        pairs = list(zip(net.parameters(), one.parameters(), strict=True))
        assert sum(p.grad is not None for p, _ in pairs) > least
        for p, q in pairs:
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                torch.testing.assert_close(q.grad[r], p.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("temperature", "samples"), [(0.7, 4), (0.7, 1), (0.0, 4)])
def test_the_elbos_gradient_is_that_of_each_run_alone(temperature, samples):
    alone, (x, y) = nets(), batch()
    one = stacked(alone)
    settings = {"temperature": temperature, "samples": samples, "estimator": "local"}
    elbos = [ELBO(50, ScaleMixture(0.25, 1.0, 0.1), **settings, generator=g) for g in generators()]
    nlls = [elbo.add_gradients(net, *each) for elbo, net, *each in zip(elbos, alone, x, y, strict=True)]
    travel_like(one, alone[0])
    measured = {}
    found = add_elbo_gradients_of_runs(elbos[0], one, x, y, seeds.seeds_ahead(generators(), 2, DEVICE), measured)
    torch.testing.assert_close(found, torch.stack(nlls), rtol=1e-5, atol=1e-6)
    same(alone, one)
    assert len(measured) == (8 if temperature else 4), "without a KL the head's gradient is autograd's"
    for p, sums in measured.items():
        torch.testing.assert_close(sums.view(RUNS, -1).sum(1), p.grad.flatten(1).square().sum(1))


def test_signed_gradients_are_those_of_each_run_alone():
    alone, (x, _) = nets(), batch()
    one, drawn = stacked(alone), seeds.seeds_ahead(generators(), 1, DEVICE)[0]
    together = signed_gradients_of_runs(one, [g.mu for _, g in gaussians(one)], x, class_roots, drawn)
    for r, (net, generator) in enumerate(zip(alone, generators(), strict=True)):
        own = signed_gradients(net, [g.mu for _, g in gaussians(net)], x[r], class_roots, generator)
        for a, b in zip(own, together, strict=True):
            assert a.abs().sum() > 0
            torch.testing.assert_close(b[r], a, rtol=1e-4, atol=1e-6)


def test_steps_of_ucb_ng_together_are_those_of_each_run_alone():
    """With held-out inputs of its own each; the second pass over a batch of theirs begins elsewhere."""
    runs, twins = ([small_run("ucb-ng", seed=seed, samples=2, device=DEVICE) for seed in range(2)] for _ in range(2))
    for run in (*runs, *twins):
        run._begin(run._task(0))
        run.method.look(run._data_of(run._task(0)))
    for run in (runs[0], twins[0]):
        run.method.held_out = run.method.held_out.flip(0)
    torch.manual_seed(3)
    x, y = torch.randn(2, 2, 32, 8, device=DEVICE), torch.randint(2, (2, 2, 32), device=DEVICE)
    stack = Stack([run.method for run in runs], x[0, 0])
    stack.take_rates()
    draws = seeds.seeds_ahead(stack.generators, 4, DEVICE).view(2, 2, 2)
    for step in range(2):
        stack.learn(x[step].flatten(0, 1), y[step].flatten(), draws[step])
        for r, twin in enumerate(twins):
            twin.method.learn(x[step, r], y[step, r])
    for r, (run, twin) in enumerate(zip(runs, twins, strict=True)):
        stack.hand_over(r)
        kept, wanted = run.method.optimizer.state, twin.method.optimizer.state
        pairs = zip(run.method.net.named_parameters(), twin.method.net.parameters(), strict=True)
        for (name, mine), other in pairs:
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, msg=name)
            if "curvature" in wanted.get(other, {}):
                assert float(kept[mine]["seen"]) == 2
                torch.testing.assert_close(kept[mine]["curvature"], wanted[other]["curvature"], rtol=1e-3, atol=1e-6)


def test_what_runs_cannot_learn_at_once_is_refused():
    alone, (x, y) = nets(), batch()
    drawn = seeds.seeds_ahead(generators(), 2, DEVICE)
    with pytest.raises(RuntimeError, match="local"):
        add_elbo_gradients_of_runs(ELBO(50, estimator="weights"), stacked(alone), x, y, drawn)


@pytest.mark.parametrize("bias", [True, False])
def test_an_ordinary_nets_gradient_is_that_of_each_run_alone(bias):
    alone, (x, y) = nets(bayesian=False), batch()
    if not bias:
        for net in alone:
            net[0].bias = None
    one = stacked(alone)
    for net, *each in zip(alone, x, y, strict=True):
        nn.functional.cross_entropy(net(each[0]), each[1]).backward()
    losses_of_runs(one, lambda x, y: nn.functional.cross_entropy(one(x), y), x, y).sum().backward()
    same(alone, one, least=2)


@pytest.mark.parametrize("serves", [True, False])
def test_seeds_ahead_are_those_that_are_drawn_one_by_one(serves, monkeypatch):
    if not serves:
        monkeypatch.setattr(seeds, "_draws_as_known", lambda device: False)
    drawing, ahead, moved = generators(), generators(), generators()
    for g in (*drawing, *ahead):
        seeds.new_seed(DEVICE, g)
    wanted = torch.stack([torch.cat([seeds.new_seed(DEVICE, g) for g in drawing]) for _ in range(7)])
    before = [g.get_state() for g in ahead]
    assert torch.equal(seeds.seeds_ahead(ahead, 7, DEVICE), wanted)
    for g, h, state, there in zip(ahead, moved, before, drawing, strict=True):
        assert torch.equal(g.get_state(), state), "they stay where they are"
        seeds.move_on(h, state, 7)
        assert torch.equal(h.get_state(), there.get_state())


@pytest.mark.gpu
def test_this_pytorch_draws_as_the_kernel_does():
    assert seeds._draws_as_known(DEVICE)


def weights(*shape):
    torch.manual_seed(2)
    return [torch.randn(RUNS, *shape, device=DEVICE) for _ in range(6)]


@pytest.mark.parametrize("shape", [(3, 5), (41, 17)])
def test_drawing_and_stepping_all_runs_is_doing_it_one_by_one(shape):
    """Sizes that are not a multiple of 16: a run's part then begins where no load of four numbers may."""
    mu, rho, scale, *grads = weights(*shape)
    seeds = torch.tensor([5, 77, 123_456], device=DEVICE)
    together = noise.sample(mu, rho, None, seeds, 3, 5)
    rates = torch.tensor([0.1, 0.0, 0.3], device=DEVICE)
    factor = torch.tensor([1.0, 0.5, 0.25], device=DEVICE)
    moved = [mu.clone(), rho.clone()]
    fused.descend(*moved, *grads[:2], scale, None, None, rates, rates, factor)
    for r in range(RUNS):
        assert torch.equal(noise.sample(mu[r], rho[r], None, seeds[r : r + 1], 3, 5), together[r])
        own = [mu[r].clone(), rho[r].clone()]
        rate = float(rates[r])
        fused.descend(*own, grads[0][r], grads[1][r], scale[r], None, None, rate, rate, factor[r : r + 1])
        torch.testing.assert_close(own[0], moved[0][r])
        torch.testing.assert_close(own[1], moved[1][r])


def test_a_natural_step_of_all_runs_is_one_of_each():
    mu, rho, scale, grad, signed, h = weights(41, 17)
    h, precision, seen = h.square(), torch.full_like(h, 100.0), torch.tensor([1.0, 5.0, 99.0], device=DEVICE)
    rates = torch.tensor([0.1, 0.2, 0.3], device=DEVICE)
    moved = [mu.clone(), rho.clone(), h.clone()]
    fused.natural(*moved[:2], grad, signed, moved[2], precision, seen, scale, None, rates, 0.5, 200, 0.01, 8)
    for r in range(RUNS):
        own = [mu[r].clone(), rho[r].clone(), h[r].clone()]
        known = own[2], precision[r], seen[r : r + 1], scale[r], None
        fused.natural(*own[:2], grad[r], signed[r], *known, float(rates[r]), 0.5, 200, 0.01, 8)
        for a, b in zip(own, moved, strict=True):
            torch.testing.assert_close(a, b[r])


def test_logits_that_are_part_of_others_are_read_as_they_lie():
    logits, target = torch.randn(RUNS, 8, 4, device=DEVICE), torch.randint(4, (RUNS, 6), device=DEVICE)
    found = torch.vmap(lambda x, y: classes.cross_entropy(x[:6], y))(logits, target)
    wanted = torch.stack([nn.functional.cross_entropy(x[:6], y) for x, y in zip(logits, target, strict=True)])
    torch.testing.assert_close(found, wanted)


def test_a_layer_on_more_than_rows_of_features_is_refused():
    one = stacked(nets(bayesian=False))
    with pytest.raises(RuntimeError, match="rows"):
        losses_of_runs(one, lambda x: one(x).mean(), torch.randn(RUNS, 3, 5, 6, device=DEVICE))


def test_no_seeds_ahead_are_none():
    assert seeds.seeds_ahead(generators(), 0, DEVICE).shape == (0, RUNS)


def test_gaussians_are_found_in_a_stack():
    assert [g.mu.shape[0] for _, g in gaussians(stacked(nets()))] == [RUNS] * 4
