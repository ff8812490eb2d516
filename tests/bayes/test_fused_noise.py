"""The noise of the fused kernels, on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch

from tests.bayes.fused_weights import KBC, NEW, close, noise, normal, seed, weights
from tests.bayes.triton_tests import DEVICE, MARKS, ON_GPU
from ucb.kernels.triton import fused, launch

pytestmark = MARKS


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
        fused.gradients(a, b, None, seed(), 0, normal(1, 4, 6).expand(3, 4, 6), None, 0, None, 0, 0, a, b, NEW)


def test_a_cpu_is_left_to_pytorch():
    assert not launch.available(torch.device("cpu"))
    assert not launch.supports(torch.ones(3))


def test_kernels_can_be_switched_off(monkeypatch):
    assert launch.available(DEVICE) == launch.supports(normal(3)) == ON_GPU
    assert launch.status().startswith("fused by Triton") == ON_GPU
    monkeypatch.setenv("UCB_KERNELS", "off")
    assert not launch.available(DEVICE)
    assert launch.status() == "PyTorch (UCB_KERNELS=off)"


def test_seeds_follow_the_generator():
    a, b = (torch.Generator(DEVICE).manual_seed(1) for _ in range(2))
    first = fused.new_seed(DEVICE, a)
    assert first.dtype == torch.int64
    assert first.shape == (1,)
    assert first == fused.new_seed(DEVICE, b)
    assert abs(first - fused.new_seed(DEVICE, a)) > 1 << 20


@pytest.mark.gpu
def test_a_recorded_graph_draws_new_noise_at_every_replay():
    mu, rho, _ = weights((41, 17))
    key, out = seed(), torch.empty(2, 41, 17, device=DEVICE)

    def step():
        w = fused.sample(mu, rho, None, key, 3, 5)
        fused.gradients(mu, rho, None, key, 3, w, None, 2, KBC, 0.1, 0.2, *out, NEW)
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
    sums = fused.gradients(nothing, nothing, None, seed(), 0, None, None, 1, KBC, 1.0, 1.0, nothing, nothing, NEW).sum(
        0
    )
    assert sums.tolist() == [0, 0]
    assert launch.blocks(launch.BLOCK + 1) == 2
