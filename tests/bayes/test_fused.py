"""The fused kernels against PyTorch and autograd: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.bayes.triton_tests import DEVICE, MARKS, ON_GPU
from ucb.bayes import ScaleMixture, gaussians, to_bayesian
from ucb.bayes.kernels import fused, launch, reference
from ucb.bayes.posterior import inverse_softplus
from ucb.optim import UCB, UCBNG, param_groups

pytestmark = MARKS
SHAPES = [(3, 5, 2), (512,), (41, 17)]  # less than a block, one block, one and a bit
SAMPLES = [1, 2, 4, 5, 10]
CASES = [(shape, samples, shape == SHAPES[-1] and samples != 4) for shape in SHAPES for samples in SAMPLES]
MIXTURE = ScaleMixture(0.25, 1.0, 0.05)
KBC = (MIXTURE.k, MIXTURE.b, MIXTURE.c)


def seed(value=1234):
    return torch.tensor([value], device=DEVICE)


def normal(*shape):
    return torch.randn(shape, device=DEVICE)


def noise(shape, samples, key=None, salt=3):
    """What the kernels draw, seen through weights of mean 0 and spread 1."""
    rho = inverse_softplus(torch.ones(shape, device=DEVICE, dtype=torch.float64)).float()
    return fused.sample(torch.zeros(shape, device=DEVICE), rho, None, seed() if key is None else key, salt, samples)


def weights(shape, pruned=False):
    """Means and spreads of all sizes, and a mask."""
    return normal(*shape), 3 * normal(*shape) - 2, (torch.rand(shape, device=DEVICE) < 0.6) if pruned else None


def close(actual, expected, rtol=2e-5, atol=2e-5):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=rtol, atol=atol)


# --- the noise


def test_noise_is_standard_normal():
    eps = noise((50_000,), 4).double()
    assert abs(eps.mean()) < 0.01
    assert abs(eps.var() - 1) < 0.015
    assert abs(eps.pow(3).mean()) < 0.03
    assert abs(eps.pow(4).mean() - 3) < 0.08
    assert abs((eps.abs() < 1).double().mean() - 0.6827) < 0.005
    assert 3.8 < eps.abs().max() < 6


def test_samples_elements_salts_and_seeds_have_independent_noise():
    first = noise((3000,), 9)
    others = [noise((3000,), 9, salt=4), noise((3000,), 9, seed(99))]
    rows = torch.cat([first, *others, first.roll(1, 1)])
    correlation = torch.corrcoef(rows) - torch.eye(len(rows), device=DEVICE)
    assert correlation.abs().max() < 0.1


def test_noise_repeats_and_follows_the_seed_on_the_device():
    key = seed(5)
    first = noise((100,), 3, key)
    assert torch.equal(first, noise((100,), 3, key))
    key += 1000
    assert not torch.isclose(first, noise((100,), 3, key)).any()


def test_an_elements_counter_is_the_group_times_the_size_plus_its_place():
    # sample 4 g + j of n elements is normal j of counter g n + i: of one group of all the counters, in other words
    grouped, flat = noise((10,), 12).view(3, 4, 10), noise((30,), 4).view(4, 3, 10)
    close(grouped, flat.transpose(0, 1), atol=1e-6)


def test_more_samples_begin_with_the_same_ones():
    close(noise((60,), 10)[:5], noise((60,), 5), atol=1e-6)


def test_more_noise_than_counters_is_refused():
    few = torch.zeros(2, device=DEVICE)
    with pytest.raises(ValueError, match="counters"):
        fused.sample(few, few, None, seed(), 0, 2**32 + 8)


def test_what_a_kernel_cannot_read_is_refused():
    a, b = normal(4, 6), normal(4, 6)
    with pytest.raises(ValueError, match="float32"):
        fused.sample(a.double(), b, None, seed(), 0, 1)
    with pytest.raises(ValueError, match="scattered"):
        fused.sample(a.t(), b.t(), None, seed(), 0, 1)
    with pytest.raises(ValueError, match="fit"):
        fused.sample(a, b.view(6, 4), None, seed(), 0, 1)
    with pytest.raises(ValueError, match="mask"):
        fused.sample(a, b, torch.ones_like(a), seed(), 0, 1)
    with pytest.raises(ValueError, match="seed"):
        fused.sample(a, b, None, torch.zeros(1, device=DEVICE), 0, 1)
    with pytest.raises(ValueError, match="grad_w"):
        fused.gradients(a, b, None, seed(), 0, normal(1, 4, 6).expand(3, 4, 6), 0, None, 0, 0, a, b, False)


def test_a_cpu_is_left_to_pytorch():
    assert not fused.available(torch.device("cpu"))
    assert not fused.serves(torch.ones(3))


def test_kernels_can_be_switched_off(monkeypatch):
    assert fused.available(DEVICE) == fused.serves(normal(3)) == ON_GPU
    assert fused.status().startswith("fused by Triton") == ON_GPU
    monkeypatch.setenv("UCB_KERNELS", "off")
    assert not fused.available(DEVICE)
    assert fused.status() == "PyTorch (UCB_KERNELS=off)"


def test_seeds_follow_the_generator():
    a, b = (torch.Generator(DEVICE).manual_seed(1) for _ in range(2))
    first = fused.new_seed(DEVICE, a)
    assert first.dtype == torch.int64
    assert first.shape == (1,)
    assert first == fused.new_seed(DEVICE, b)
    assert abs(first - fused.new_seed(DEVICE, a)) > 1 << 20


# --- weights, and their gradients


@pytest.mark.parametrize(("shape", "samples", "pruned"), CASES)
def test_sample_follows_the_reference(shape, samples, pruned):
    mu, rho, keep = weights(shape, pruned)
    w = fused.sample(mu, rho, keep, seed(), 3, samples)
    assert w.shape == (samples, *shape)
    close(w, reference.sample(mu.double(), rho.double(), keep, noise(shape, samples).double()))
    if keep is not None:
        assert (w[:, ~keep] == 0).all()


@pytest.mark.parametrize("prior_samples", [0, 1, 6])
@pytest.mark.parametrize(
    ("samples", "pruned"), [(0, False), (0, True), (1, False), (2, True), (4, False), (5, True), (10, False)]
)
def test_gradients_are_those_of_the_loss(samples, prior_samples, pruned):
    shape, factor, entropy = (41, 17), -0.3, 0.7
    mu, rho, keep = weights(shape, pruned)
    grad_w = normal(samples, *shape) if samples else None
    total = max(samples, prior_samples, 1)
    eps = noise(shape, total).double()

    m, r = mu.double().requires_grad_(), rho.double().requires_grad_()
    kept = torch.ones(shape, dtype=torch.bool, device=DEVICE) if keep is None else keep
    w = reference.sample(m, r, keep, eps)
    k, b, c = KBC
    f = (k * w.square() + F.softplus(b + c * w.square()))[:prior_samples].where(kept, 0).sum()
    log_sigma = F.softplus(r).log().where(kept, 0).sum()
    data = 0 if grad_w is None else (w[:samples] * grad_w.double()).sum()
    (data + factor * f - entropy * log_sigma).backward()

    out_mu, out_rho = torch.full_like(mu, 7), torch.full_like(mu, 7)
    args = (grad_w, prior_samples, KBC if prior_samples else None, factor, entropy)
    sums = fused.gradients(mu, rho, keep, seed(), 3, *args, out_mu, out_rho, False).sum(0)
    close(out_mu, m.grad, rtol=1e-4, atol=1e-4)
    close(out_rho, r.grad, rtol=1e-4, atol=1e-4)
    close(sums, torch.stack([f, log_sigma]).detach(), rtol=1e-4)

    ref_mu, ref_rho = torch.full_like(m, 7), torch.full_like(m, 7)
    args64 = (None if grad_w is None else grad_w.double(), *args[1:])
    ref_sums = reference.gradients(mu.double(), rho.double(), keep, eps, *args64, ref_mu, ref_rho, False)
    close(ref_mu, m.grad, rtol=1e-9, atol=1e-9)
    close(ref_rho, r.grad, rtol=1e-9, atol=1e-9)
    close(ref_sums, torch.stack([f, log_sigma]).detach(), rtol=1e-9)


def test_gradients_add_to_what_is_there():
    mu, rho, keep = weights((41, 17), pruned=True)
    grad_w, before = normal(3, 41, 17), normal(2, 41, 17)
    alone, added = torch.empty_like(before), before.clone()
    for out, add in ((alone, False), (added, True)):
        fused.gradients(mu, rho, keep, seed(), 3, grad_w, 2, KBC, 0.1, 0.2, *out, add)
    close(added, before + alone)
    assert torch.equal(added[:, ~keep], before[:, ~keep])


def test_gradients_hold_for_spreads_of_every_size():
    rho = torch.tensor([-1000, -200, -90, -50, -17, -5, -1e-3, 0, 1e-3, 1, 20, 90, 1000], device=DEVICE).float()
    mu, out_mu, out_rho = torch.zeros_like(rho), torch.empty_like(rho), torch.empty_like(rho)
    _, log_sigma = fused.gradients(mu, rho, None, seed(), 0, None, 0, None, 0.0, 1.0, out_mu, out_rho, False).sum(0)
    wide = rho.double()
    sigma = F.softplus(wide).clamp_min(1e-300)
    close(-out_rho, torch.where(wide < -50, 1.0, wide.sigmoid() / sigma))
    close(log_sigma, torch.where(wide < -50, wide, sigma.log()).sum())


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # the interpreter's, of c * w^2
@pytest.mark.parametrize("w", [0.0, 1e-4, 3.0, 1e4, 1e18])
def test_the_mixture_holds_for_weights_of_every_size(w):
    prior = ScaleMixture()  # its narrow component makes c -81000
    mu = torch.full((3,), w, device=DEVICE)
    rho, out = torch.full_like(mu, -100), torch.empty(2, 3, device=DEVICE)
    log_p, _ = fused.gradients(
        mu, rho, None, seed(), 0, None, 1, (prior.k, prior.b, prior.c), 1.0, 0.0, *out, False
    ).sum(0)
    wide = mu.double()
    close(out[0], prior.score(wide), rtol=1e-5)
    close(log_p, (prior.log_prob(wide) - prior.a).sum(), rtol=1e-5)


def test_a_pruned_weights_bad_gradient_does_no_harm():
    mu, rho, _ = weights((6,))
    keep = torch.tensor([True, False] * 3, device=DEVICE)
    grad_w = normal(2, 6).masked_fill(~keep, torch.nan)
    out = torch.empty(2, 6, device=DEVICE)
    sums = fused.gradients(mu, rho, keep, seed(), 3, grad_w, 2, KBC, 0.1, 0.2, *out, False).sum(0)
    assert out.isfinite().all()
    assert sums.isfinite().all()
    assert (out[:, ~keep] == 0).all()


@pytest.mark.parametrize(("shape", "samples", "pruned"), CASES)
def test_sampled_weights_pass_gradients_on(shape, samples, pruned):
    mu, rho, keep = weights(shape, pruned)
    factors = normal(samples, *shape)
    m, r = mu.clone().requires_grad_(), rho.clone().requires_grad_()
    w = fused.sample_weights(m, r, keep, seed(), 3, samples)
    (w * factors).sum().backward()
    # the noise that forward used, read off its weights: backward must have made the same again
    eps = ((w.detach().double() - mu) / F.softplus(rho.double())).nan_to_num()
    m64, r64 = mu.double().requires_grad_(), rho.double().requires_grad_()
    (reference.sample(m64, r64, keep, eps) * factors).sum().backward()
    close(m.grad, m64.grad)
    close(r.grad, r64.grad, rtol=1e-3, atol=1e-4)


def test_a_seed_that_changes_before_backward_is_noticed():
    mu, rho, _ = weights((6,))
    key = seed()
    w = fused.sample_weights(mu.requires_grad_(), rho, None, key, 0, 2)
    key += 1
    with pytest.raises(RuntimeError, match="inplace"):
        w.sum().backward()


# --- noise on outputs, and squared spreads


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (30, 19), (4, 1)])
@pytest.mark.parametrize("samples", SAMPLES)
def test_local_noise_follows_the_reference_and_autograd(shape, samples):
    mean, variance = normal(*shape), normal(*shape).square()
    variance.view(-1)[::4] = 0
    factors = normal(shape[0] * samples, shape[1])
    m, v = mean.clone().requires_grad_(), variance.clone().requires_grad_()
    out = fused.local_noise(m, v, seed(), 3, samples)
    (out * factors).sum().backward()
    eps = noise(shape, samples).double()
    m64, v64 = mean.double().requires_grad_(), variance.double().requires_grad_()
    expected = reference.local_noise(m64, v64, eps)
    (expected * factors).sum().backward()
    close(out, expected)
    close(m.grad, m64.grad)
    close(v.grad, v64.grad, rtol=1e-4)
    assert (v.grad[variance == 0] == 0).all()
    row = out.view(shape[0], samples, shape[1])[-1, -1]
    close(row, mean[-1] + variance[-1].sqrt() * eps[-1, -1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pruned", [False, True])
def test_sigma_squared_and_its_gradient(shape, pruned):
    _, rho, keep = weights(shape, pruned)
    r, r64, factors = rho.clone().requires_grad_(), rho.double().requires_grad_(), normal(*shape)
    squared, expected = fused.sigma_squared(r, keep), reference.sigma_squared(r64, keep)
    close(squared, expected, rtol=1e-5, atol=0)
    (squared * factors).sum().backward()
    (expected * factors).sum().backward()
    close(r.grad, r64.grad, rtol=1e-5, atol=1e-12)


# --- the steps


@pytest.mark.parametrize("scaled", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("pruned", [False, True])
def test_descend_follows_the_reference(scaled, pruned):
    mu, rho, keep = weights((41, 17), pruned)
    before = torch.stack([mu, rho])
    grads = normal(2, 41, 17)
    scales = [torch.rand(41, 17, device=DEVICE) if wanted else None for wanted in scaled]
    m, r = mu.double(), rho.double()
    fused.descend(mu, rho, *grads, *scales, keep, 0.3, 0.05)
    reference.descend(m, r, *grads.double(), *scales, keep, 0.3, 0.05)
    close(mu, m)
    close(rho, r)
    if keep is not None:
        assert torch.equal(torch.stack([mu, rho])[:, ~keep], before[:, ~keep])


def test_autograd_sees_that_a_step_has_written():
    mu, rho, _ = weights((6,))
    mu.requires_grad_()
    loss = (mu * mu).sum()
    with torch.no_grad():
        fused.descend(mu, rho, mu.detach().clone(), rho.clone(), None, None, None, 0.1, 0.1)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def small_net(pruned):
    net = to_bayesian(nn.Linear(31, 43)).to(DEVICE)
    if pruned:
        for _, g in gaussians(net):
            g.prune(torch.rand(g.mu.shape, device=DEVICE) < 0.7)
    return net


def set_gradients(net, size):
    for p in net.parameters():
        p.grad = size * torch.randn_like(p)


@pytest.mark.parametrize("pruned", [False, True])
def test_descend_steps_as_ucb_does(pruned, monkeypatch):
    monkeypatch.setenv("UCB_KERNELS", "off")  # the optimiser shall not use what it is compared with
    net = small_net(pruned)
    optimizer = UCB(param_groups(net), lr=0.1, rho_lr=0.02)
    for _ in range(2):
        set_gradients(net, 1.0)
        copies = [(g, g.mu.detach().clone(), g.rho.detach().clone()) for _, g in gaussians(net)]
        for g, mu, rho in copies:
            scales = [optimizer.state[p].get("scale") for p in (g.mu, g.rho)]
            fused.descend(mu, rho, g.mu.grad, g.rho.grad, *scales, g.keep, 0.1, 0.02)
        optimizer.step()
        for g, mu, rho in copies:
            close(mu, g.mu, atol=1e-6)
            close(rho, g.rho, atol=1e-6)
        optimizer.consolidate()


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("prior_sigma", [None, 3.0, 1e-3])
def test_natural_steps_as_ucbng_does(pruned, prior_sigma, monkeypatch):
    monkeypatch.setenv("UCB_KERNELS", "off")  # the optimiser shall not use what it is compared with
    net = small_net(pruned)
    settings = {"temperature": 0.07, "beta": 0.05}
    optimizer = UCBNG(param_groups(net), size=500, lr=0.1, prior_sigma=prior_sigma, **settings)
    for task in range(2):
        copies = []
        for _, g in gaussians(net):
            state = optimizer.state[g.mu]
            assert ("scale" in state) == (task > 0)
            copies.append((g, g.mu.detach().clone(), g.rho.detach().clone(), state["curvature"].clone()))
        for _ in range(3):
            set_gradients(net, 1e-3)
            for g, mu, rho, h in copies:
                state = optimizer.state[g.mu]
                args = (g.mu.grad, g.rho.grad, h, state["precision"], state.get("scale"), g.keep)
                fused.natural(mu, rho, *args, 0.1, 0.07, 500, 0.05)
            optimizer.step()
            for g, mu, rho, h in copies:
                delta = optimizer.state[g.mu]["precision"] * (0.07 / 500)  # the curvature counts beside it
                close(h + delta, optimizer.state[g.mu]["curvature"] + delta, atol=0)
                close(mu, g.mu, atol=1e-6)
                close(rho, g.rho, atol=1e-5)
                assert h.any()
        optimizer.consolidate()


@pytest.mark.parametrize("pruned", [False, True])
def test_natural_follows_the_reference_in_double_precision(pruned):
    mu, rho, keep = weights((41, 17), pruned)
    grads = normal(2, 41, 17) * 1e-3
    h, precision = torch.rand(2, 41, 17, device=DEVICE).unbind()
    h, precision = h**4, 10 ** (9 * precision - 3)  # spreads from 0.001 to 1 and more
    state = [mu, rho, *grads, h, precision]
    wide = [t.double() for t in state]
    before = torch.stack([mu, rho])
    fused.natural(*state, None, keep, 0.1, 0.5, 200, 0.01)
    reference.natural(*wide, None, keep, 0.1, 0.5, 200, 0.01)
    for i in (0, 1, 4):
        close(state[i], wide[i], rtol=1e-4)
    if keep is not None:
        assert torch.equal(torch.stack([mu, rho])[:, ~keep], before[:, ~keep])


@pytest.mark.gpu
def test_a_recorded_graph_draws_new_noise_at_every_replay():
    mu, rho, _ = weights((41, 17))
    key, out = seed(), torch.empty(2, 41, 17, device=DEVICE)

    def step():
        w = fused.sample(mu, rho, None, key, 3, 5)
        fused.gradients(mu, rho, None, key, 3, w, 2, KBC, 0.1, 0.2, *out, False)
        return w

    step()  # compiles, which a recording cannot
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        w = step()
    seen = []
    for value in (77, 78_000):
        key.fill_(value)
        graph.replay()
        seen.append((w.clone(), out.clone()))
        assert torch.equal(seen[-1][0], step())
        assert torch.equal(seen[-1][1], out)
    assert not torch.isclose(seen[0][0], seen[1][0]).all()


def test_an_empty_tensor_is_no_work():
    nothing = torch.empty(0, 3, device=DEVICE)
    assert fused.sample(nothing, nothing, None, seed(), 0, 2).shape == (2, 0, 3)
    sums = fused.gradients(nothing, nothing, None, seed(), 0, None, 1, KBC, 1.0, 1.0, nothing, nothing, False).sum(0)
    assert sums.tolist() == [0, 0]
    assert launch.blocks(launch.BLOCK + 1) == 2
