"""AlexNet, ResNet18 and their normalisation."""

import copy

import pytest
import torch
from torch import nn

from ucb.bayes import forward, gaussians, to_bayesian
from ucb.nets import NETS, alexnet, build_net, net_options, resnet18
from ucb.nets.heads import TaskBatchNorm2d
from ucb.nets.networks import ResidualBlock

CIFAR = [2] * 5 + [20] * 5
EIGHT = [100, 10, 100, 10, 10, 10, 43, 10]


def size(net):
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(("heads", "expected"), [(EIGHT, 7_104_229), (CIFAR, 6_729_262)])
def test_alexnet_has_the_papers_parameters(heads, expected):
    assert size(alexnet((3, 32, 32), heads)) == expected


def test_alexnet_drops_units_unless_told_not_to():
    rates = [m.p for m in alexnet((3, 32, 32), [2]).modules() if isinstance(m, nn.Dropout)]
    assert rates == [0.2, 0.2, 0.5, 0.5, 0.5]
    assert not any(isinstance(m, nn.Dropout) for m in alexnet((3, 32, 32), [2], dropout=0.0).modules())


@pytest.mark.parametrize("norm", ["batch", "task-batch", "group", "none"])
def test_resnet18_keeps_to_the_papers_budget(norm):
    narrow, wide = (size(resnet18((3, 32, 32), CIFAR, width, norm)) for width in (51, 64))
    assert 7.0e6 < narrow < 7.3e6
    assert 11.1e6 < wide < 11.4e6


@pytest.mark.parametrize("norm", ["batch", "task-batch", "group", "none"])
def test_resnet18_answers_and_learns(norm):
    torch.manual_seed(0)
    net = resnet18((3, 32, 32), [3, 5], 8, norm)
    x = torch.randn(4, 3, 32, 32)
    assert net(x).shape == (4, 3)
    net.current = 1
    assert net(x).shape == (4, 5)
    net(x).square().sum().backward()
    moved = [n for n, p in net.named_parameters() if p.grad is not None]
    assert not any(name.startswith("heads.0") for name in moved)
    assert sum("conv" in name for name in moved) >= 16


def test_branches_without_normalisation_begin_as_nothing_and_learn():
    """Each block begins as its shortcut, but for conv2's constant bias; so outputs keep a sensible size."""
    torch.manual_seed(0)
    net = resnet18((3, 32, 32), [5], 16, "none")
    blocks = [m for m in net.modules() if isinstance(m, ResidualBlock)]
    assert len(blocks) == 8
    assert not any(block.conv2.weight.any() for block in blocks)
    x = torch.randn(8, 3, 32, 32)
    with torch.no_grad():
        for block in blocks:
            inputs = torch.randn(2, block.conv1.in_channels, 8, 8)
            expected = (block.shortcut(inputs) + block.conv2.bias[:, None, None]).relu()
            torch.testing.assert_close(block(inputs), expected)
        logits = net(x)
        assert logits.isfinite().all()
        assert 0.01 < float(logits.square().mean().sqrt()) < 2
    nn.functional.cross_entropy(net(x), torch.arange(8) % 5).backward()
    assert all(float(block.conv2.weight.grad.abs().max()) > 0 for block in blocks)


def test_each_task_has_its_own_statistics():
    """Task 2's batches do not touch what task 1 normalises with: that would be a way of forgetting."""
    net = resnet18((3, 32, 32), [2, 2], 8, "task-batch")
    norms = [m for m in net.modules() if isinstance(m, TaskBatchNorm2d)]
    net.train()
    net(torch.randn(8, 3, 32, 32))
    before = [m.of_task[0].running_mean.clone() for m in norms]
    net.current = 1
    net(5 + torch.randn(8, 3, 32, 32))
    assert all(torch.equal(m.of_task[0].running_mean, b) for m, b in zip(norms, before, strict=True))
    assert all(m.current == 1 and m.of_task[1].running_mean.abs().sum() > 0 for m in norms)
    with net.using(0):
        assert all(m.current == 0 for m in norms)
    shared = resnet18((3, 32, 32), [2, 2], 8, "batch")
    bn = next(m for m in shared.modules() if isinstance(m, nn.BatchNorm2d))
    shared(torch.randn(8, 3, 32, 32))
    first = bn.running_mean.clone()
    shared.current = 1
    shared(5 + torch.randn(8, 3, 32, 32))
    assert not torch.equal(bn.running_mean, first)


def test_to_choose_a_head_does_not_walk_over_all_heads(monkeypatch):
    """All tasks are judged after each: with a walk in every choice that would grow with the square of their number."""
    net = resnet18((3, 32, 32), [2, 2], 8, "task-batch")
    monkeypatch.setattr(net.heads, "named_modules", lambda *_, **__: pytest.fail("walked over the heads"))
    net.current = 1
    assert all(m.current == 1 for m in net.trunk.modules() if isinstance(m, TaskBatchNorm2d))


def test_hidden_heads_are_passed_by_and_answer_as_ever():
    net, x = resnet18((3, 32, 32), [2, 2, 3], 8).eval(), torch.randn(2, 3, 32, 32)
    whole, names = net(x), list(net.state_dict())
    with net.heads.showing([1]):
        shown = {name for name in net.state_dict() if name.startswith("heads.")}
        assert shown == {"heads.1.weight", "heads.1.bias"}
        assert (len(net.heads), len(list(net.heads)), net.heads[-1].out_features) == (3, 3, 3)
        assert torch.equal(net(x), whole), "head 0"
        copied = copy.deepcopy(net)
        with net.heads.showing(None):
            state = net.state_dict()
        net.load_state_dict({name: torch.zeros_like(value) for name, value in state.items()})
    assert list(net.state_dict()) == names
    assert [bool(head.weight.any()) for head in net.heads] == [True, False, True]
    with copied.heads.showing(None):
        assert torch.equal(copied(x), whole)
        assert list(copied.state_dict()) == names


@pytest.mark.parametrize("name", [name for name in NETS if name != "patches"])  # whose filters are never learnt
def test_bayesian_twins_come_from_the_conversion(name):
    torch.manual_seed(0)
    small = {"mlp": {"hidden": [12]}, "alexnet": {"dropout": 0.0}, "resnet18": {"width": 4}}[name]
    net = build_net(name, (3, 32, 32), [2, 3], small)
    weights = size(net)
    twin = to_bayesian(net, init_std_ratio=1e-6).eval()
    assert sum(g.mu.numel() for _, g in gaussians(twin)) == weights
    x = torch.randn(2, 3, 32, 32)
    out = forward(twin, x, 2, estimator="weights")
    assert out.shape == (2, 2, 2)
    torch.testing.assert_close(out[0], net.eval()(x), rtol=1e-2, atol=1e-2)


def test_options_of_nets_are_known_and_wrong_names_answered():
    assert set(net_options("resnet18")) == {"width", "norm"}
    with pytest.raises(ValueError, match="resnet18"):
        build_net("resnet", (3, 32, 32), [2], {})
    with pytest.raises(ValueError, match="norm must be one of"):
        resnet18((3, 32, 32), [2], norm="layer")
