"""What people do with nets in PyTorch, done with a twin: mixed precision, schedules, copies, files, torch.compile."""

import copy
import io
import math
import os
import shutil
import statistics
import time

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import nn
from torch._dynamo.utils import counters
from torch.optim import lr_scheduler

import ucb
from ucb.bayes import ELBO, Normal, PreviousPosterior, forward, mean_forward, predict, to_bayesian

ROWS = 12


class Gated(nn.Module):
    """Takes keyword inputs, or one tensor, and answers with a mapping."""

    def __init__(self, inputs=8, width=16):
        super().__init__()
        self.inner, self.norm, self.out = nn.Linear(inputs, width), nn.LayerNorm(width), nn.Linear(width, 3)

    def forward(self, x, gate=None):
        h = self.norm(torch.relu(self.inner(x)))
        return {"hidden": h, "logits": self.out(h if gate is None else h * gate)}


def batches(rows=ROWS, inputs=8):
    x = torch.randn(rows, inputs)
    return {"tensor": x, "mapping": {"x": x, "gate": torch.rand(rows, 1) + 0.5}}


Y = torch.arange(ROWS) % 3
FORMS = ["tensor", "mapping"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("estimator", ["weights", "local", "flipout"])
@pytest.mark.parametrize("stack", [None, True])
def test_autocast_computes_in_half_precision_and_learns_in_single(form, estimator, stack):
    net, x, elbos = to_bayesian(Gated()), batches()[form], []
    for enabled in (False, True):
        net.zero_grad()
        elbo = ELBO(50, Normal(0.5), samples=4, estimator=estimator, stack=stack, generator=seeded(1))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            terms = elbo.backward(net, x, Y)
            assert mean_forward(net, x).dtype == (torch.bfloat16 if enabled else torch.float32)
            assert predict(net, x, 3).probabilities.float().sum(-1).allclose(torch.ones(()), atol=0.02)
        elbos.append((terms.nll, [p.grad.clone() for p in net.parameters()]))
    (nll, exact), (rounded_nll, rounded) = elbos
    torch.testing.assert_close(rounded_nll.float(), nll, rtol=0.05, atol=0.05)
    for a, b in zip(rounded, exact, strict=True):
        assert a.dtype == torch.float32
        assert F.cosine_similarity(a.flatten(), b.flatten(), 0) > 0.98


@pytest.mark.parametrize("form", FORMS)
def test_a_grad_scaler_scales_the_loss_and_not_the_step(form):
    x, ends = batches()[form], []
    start = to_bayesian(Gated())
    for scale in (None, 1024.0):
        net = copy.deepcopy(start)
        optimizer = ucb.UCB(ucb.param_groups(net), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
        elbo = ELBO(50, samples=2, generator=seeded(1))
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(elbo(net, x, Y).loss).backward()
            scaler.step(optimizer)
            scaler.update()
        ends.append([p.detach().clone() for p in net.parameters()])
    torch.testing.assert_close(ends[0], ends[1])
    assert not all(torch.equal(a, b) for a, b in zip(ends[0], start.parameters(), strict=True))


def test_a_grad_scaler_skips_a_step_whose_gradients_overflow():
    net = to_bayesian(Gated())
    before = [p.detach().clone() for p in net.parameters()]
    optimizer, scaler = ucb.UCB(ucb.param_groups(net), lr=0.05), torch.amp.GradScaler("cpu", init_scale=1e38)
    scaler.scale(ELBO(50)(net, batches()["tensor"] * 1e6, Y).loss * 1e6).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < 1e38
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


SCHEDULES = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 2, 0.1),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 6),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.2, 6, cycle_momentum=False),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.5)],
        [2],
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_sets_the_base_rate_of_every_weight(schedule):
    """A step is -lr * scale * gradient, with the rate that the same schedule gives SGD, and sigma as the scale."""
    net, x = to_bayesian(Gated(), 0.5), batches()["mapping"]
    optimizer = ucb.UCB(ucb.param_groups(net), lr=0.1)
    optimizer.consolidate()
    reference = torch.optim.SGD([nn.Parameter(torch.zeros(()))], 0.1)
    schedules = [SCHEDULES[schedule](each) for each in (optimizer, reference)]
    scales = {g.mu: g.sigma.detach().clamp(max=1) for _, g in ucb.gaussians(net)}
    for _ in range(5):
        optimizer.zero_grad()
        ELBO(50).backward(net, x, Y)
        before = {mu: mu.detach().clone() for mu in scales}
        optimizer.step()
        reference.step()
        rate = reference.param_groups[0]["lr"]
        for mu, scale in scales.items():
            torch.testing.assert_close(mu.detach(), before[mu] - rate * scale * mu.grad, rtol=1e-4, atol=1e-7)
        for each in schedules:
            each.step()


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def says(net, x):
    """Return what a net gives under fixed noise, and its gradients."""
    net.zero_grad()
    terms = ELBO(50, samples=2, generator=seeded(4)).backward(net, x, Y)
    found = [terms.loss, *(p.grad.clone() for p in net.parameters())]
    return [*found, predict(net, x, 3, stack=True, generator=seeded(5)).probabilities]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("used", [False, True])
def test_a_copy_says_the_same_and_learns_by_itself(form, used):
    net, x = to_bayesian(Gated(), output=lambda answer: answer["logits"] * 2), batches()[form]
    if used:
        says(net, x)
    other = copy.deepcopy(net)
    assert not {id(p) for p in net.parameters()} & {id(p) for p in other.parameters()}
    before = says(net, x)
    assert all(torch.equal(a, b) for a, b in zip(before, says(other, x), strict=True))
    optimizer = ucb.UCB(ucb.param_groups(other), lr=0.1)
    optimizer.step()
    assert not torch.equal(says(other, x)[0], before[0])
    assert all(torch.equal(a, b) for a, b in zip(before, says(net, x), strict=True))
    other.train()
    assert not torch.equal(other(**batches()["mapping"]), other(**batches()["mapping"])), "each call draws its weights"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_a_state_is_saved_and_loaded_without_code(form, kind):
    net, x = to_bayesian(Gated()), batches()[form]
    dict(ucb.gaussians(net))["inner.weight"].prune(torch.rand(16, 8) < 0.5)
    if kind == "torch":
        torch.save(net.state_dict(), file := io.BytesIO())
        state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    else:
        state = load(save(net.state_dict()))
    other = to_bayesian(Gated())
    assert not torch.equal(says(net, x)[0], says(other, x)[0])
    other.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(says(net, x), says(other, x), strict=True))


@pytest.fixture
def compiler():
    """Start torch.compile anew."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of weights, at which torch.compile looks; it hides this
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stack", [True, False])
def test_a_compiled_net_is_one_graph_and_draws_the_same_weights(form, stack):
    """``aot_eager`` traces as the default does, and computes with PyTorch's own operations: bit for bit the same."""
    net, x, found = to_bayesian(Gated()), batches()[form], []
    for each in (net, torch.compile(net, backend="aot_eager")):
        elbo = ELBO(50, PreviousPosterior(net), samples=2, stack=stack, generator=seeded(4))
        values = []
        for _ in range(50):
            for step in (lambda: elbo.backward(each, x, Y), lambda: elbo(each, x, Y)):  # noqa: B023
                net.zero_grad()
                terms = step()
                if terms.loss.requires_grad:
                    terms.loss.backward()
                values += [terms.loss.detach(), *(p.grad.clone() for p in net.parameters())]
        found.append([*values, *predict(each, x, 3, stack=stack, generator=elbo.generator), mean_forward(each, x)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 4, "in training, in eval mode, at the mean"


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_a_compiled_net_draws_noise_on_activations_within_its_graph(estimator):
    net, x = to_bayesian(Gated()), batches()["mapping"]
    compiled = torch.compile(net, backend="aot_eager")
    elbo = ELBO(50, samples=3, estimator=estimator)
    losses = [float(elbo.backward(compiled, x, Y).nll) for _ in range(50)]
    assert len(set(losses)) == 50, "the noise is drawn anew in every step"
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 2
    few = 400
    with torch.no_grad():
        a, b = (forward(each, x, few, estimator) for each in (net, compiled))
    error = math.sqrt(2 / few)  # of a mean's difference, in standard deviations: 5 standard errors are allowed
    assert ((a.mean(0) - b.mean(0)).abs() < 5 * error * a.std(0)).all()
    assert ((a.std(0) / b.std(0)).log().abs() < 5 * math.sqrt(1 / few)).all()


@pytest.mark.usefixtures("compiler")
def test_a_plain_call_of_a_compiled_net_draws_one_sample_and_is_one_graph():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x):
            return self.cell(x), self.cell(x)

    net, x = to_bayesian(Twice()), torch.randn(6, 4)
    compiled = torch.compile(net, backend="aot_eager")
    calls = [compiled(x) for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in calls)
    assert not torch.equal(calls[0][0], calls[1][0])
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1
    calls[-1][0].sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.eval()
    assert torch.equal(compiled(x)[0], mean_forward(net, x))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_net_with_heads_is_one_graph(form):
    net, x = to_bayesian(ucb.HeadedNet(Gated(), 3, [3, 2])), batches()[form]
    compiled = torch.compile(net, backend="aot_eager")
    for _ in range(3):
        found = [ELBO(50, samples=2, generator=seeded(4)).backward(each, x, Y).loss for each in (net, compiled)]
        assert torch.equal(*found)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("compiler")
def test_a_net_that_is_compiled_in_place_or_in_parts_is_probed_as_it_was():
    x = batches()["tensor"]
    whole, parts = to_bayesian(Gated()), to_bayesian(Gated())
    parts.load_state_dict(whole.state_dict())
    expected = predict(whole, x, 3, stack=True, generator=seeded(5)).probabilities
    whole.compile(backend="aot_eager")
    parts.inner = torch.compile(parts.inner, backend="aot_eager")
    for net in (whole, parts):
        ucb.bayes.sampling.forget(net)
        assert torch.equal(predict(net, x, 3, stack=True, generator=seeded(5)).probabilities, expected)
        assert ELBO(50, samples=2, estimator="local").backward(net, x, Y).loss.isfinite()


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # within torch.compile
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_a_compiled_step_takes_at_most_a_fifth_longer(form, estimator):
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        pytest.skip("torch.compile needs a C++ compiler")
    net, x, y = to_bayesian(Gated(784, 256)), batches(64, 784)[form], torch.randint(3, (64,))
    compiled = torch.compile(net)
    elbo = ELBO(50, samples=4, estimator=estimator)

    def take(each):
        start = time.perf_counter()
        net.zero_grad()
        elbo.backward(each, x, y)
        return time.perf_counter() - start

    for _ in range(10):
        take(net), take(compiled)
    pairs = [(take(net), take(compiled)) for _ in range(100)]
    # The tenth quickest of each: other work on the machine makes steps longer, and never shorter.
    plain, fast = (statistics.quantiles(times, n=10)[0] for times in zip(*pairs, strict=True))
    assert fast <= 1.2 * plain, f"{fast / plain:.2f} times as long"
    assert counters["stats"]["unique_graphs"] <= 2
