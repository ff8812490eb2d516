"""Floors do the work that they stand for."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.experiments.bench.small import MLP, RESNET
from ucb.experiments.bench.steps import (
    RATE,
    Convolution,
    ConvolutionsAlone,
    GroupedConvolution,
    OrdinaryNets,
    convolutions_of,
    ordinary_step,
)

CPU = torch.device("cpu")


def single(batched, which):
    """One of several nets, by itself."""
    alone = OrdinaryNets(MLP, 1, batched.x, batched.y[: MLP.batch])
    alone.parameters = [p.detach()[which].clone().requires_grad_() for p in batched.parameters]
    return alone


@pytest.mark.usefixtures("double")
def test_batched_nets_learn_what_each_learns_alone():
    batched = OrdinaryNets(MLP, 10, *MLP.batch_on(CPU))
    alone = [single(batched, which) for which in range(10)]
    start = [p.detach().clone() for p in batched.parameters]
    for _ in range(5):
        for step in (batched, *alone):
            step()
    for place, together in enumerate(batched.parameters):
        assert not torch.equal(together, start[place])
        torch.testing.assert_close(together, torch.stack([step.parameters[place] for step in alone]))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("passes", [1, 4])
def test_a_bare_net_learns_what_a_module_with_an_optimiser_learns(passes):
    """An ordinary net gives the same gradient at each of its passes, and takes their mean."""
    x, y = MLP.batch_on(CPU)
    bare, net = OrdinaryNets(MLP, 1, x, y), MLP.net()
    for p, q in zip(net.parameters(), bare.parameters, strict=True):
        p.data.copy_(q.detach())
    step = ordinary_step(net, x, y, passes)
    before = F.cross_entropy(bare.logits(), y)
    for _ in range(3):
        bare()
        step()
    assert F.cross_entropy(bare.logits(), y) < before
    for p, q in zip(net.parameters(), bare.parameters, strict=True):
        torch.testing.assert_close(p, q)


def test_a_step_goes_the_rate_times_the_gradient():
    x, y = MLP.batch_on(CPU)
    bare = OrdinaryNets(MLP, 1, x, y)
    before = [p.detach().clone().requires_grad_() for p in bare.parameters]
    hidden = torch.relu(x @ before[0].T + before[1])
    loss = -(hidden @ before[2].T + before[3]).log_softmax(1)[torch.arange(MLP.batch), y].mean()
    loss.backward()
    bare()
    for p, q in zip(bare.parameters, before, strict=True):
        torch.testing.assert_close(p.detach(), q.detach() - RATE * q.grad)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("is_first", [False, True])
def test_a_grouped_convolution_is_one_for_each_sample(is_first):
    samples, layer = 3, nn.Conv2d(2, 4, 3, stride=2, padding=1)
    grouped = GroupedConvolution(Convolution(layer, (5, 2, 6, 6), is_first), samples, CPU, torch.float64)
    by_weight, *by_input = grouped()
    assert len(by_input) == (not is_first)
    assert grouped.x.is_contiguous(memory_format=torch.channels_last)
    for s in range(samples):
        channels, filters = slice(2 * s, 2 * s + 2), slice(4 * s, 4 * s + 4)
        x = grouped.x[:, channels].detach().clone().requires_grad_()
        weight = grouped.weight[filters].detach().clone().requires_grad_()
        F.conv2d(x, weight, None, stride=2, padding=1).backward(grouped.grad[:, filters])
        torch.testing.assert_close(by_weight[filters], weight.grad)
        for gradient in by_input:
            torch.testing.assert_close(gradient[:, channels], x.grad)


def test_the_convolutions_of_resnet18_are_all_there():
    net, (x, _) = RESNET.net(), RESNET.batch_on(CPU)
    met = convolutions_of(net, x)
    assert len(met) == 20  # the stem, two in each of eight blocks, and three shortcuts
    assert [each.is_first for each in met] == [True] + [False] * 19
    assert met[0].shape == (4, 3, 8, 8)
    assert met[-1].shape == (4, 64, 1, 1)
    assert not any(layer._forward_pre_hooks for layer in net.modules())
    alone = ConvolutionsAlone(net, x, RESNET.samples)
    weights = sum(layer.weight.numel() for layer in net.modules() if isinstance(layer, nn.Conv2d))
    assert sum(layer.weight.numel() for layer in alone.layers) == RESNET.samples * weights
    alone()
