"""Sums over per-example gradients against gradients taken one example at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.methods.data import Given
from ucb.methods.per_example import mean_powers, some_inputs
from ucb.nets import HeadedNet, mlp

pytestmark = pytest.mark.usefixtures("double")


class UsedTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.rand(6))

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x))) * self.scale


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


class EachToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, x):
        return self.layer(x.view(len(x), 3, 2)).tanh().flatten(1)


class Looking(nn.Module):
    """Looks at its numbers, which vmap cannot."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, x):
        x = x.view(len(x), 3, 2)
        return self.layer(-x if bool(x.isfinite().all()) else x).tanh().flatten(1)


def convolutional():
    trunk = nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
        nn.Dropout(0.5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 5, bias=False), nn.ReLU(inplace=True),
    )  # fmt: skip
    return HeadedNet(trunk, 5, [3, 2])


NETS = {
    "linear": lambda: HeadedNet(nn.Flatten(), 6, [3]),
    "perceptron": lambda: mlp((6,), [3, 2], [7, 5]),
    "convolutional": convolutional,
    "a layer used twice": lambda: HeadedNet(UsedTwice(), 6, [3]),
    "tied weights": lambda: HeadedNet(Tied(), 6, [3]),
    "a layer on tokens": lambda: HeadedNet(EachToken(), 12, [3]),
    "a way that depends on numbers": lambda: HeadedNet(Looking(), 12, [3]),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("power", [1, 2])
def test_they_are_what_single_examples_give(name, power, monkeypatch):
    monkeypatch.setattr("ucb.methods.per_example._NUMBERS", 100)  # so that chunks are in use
    net, x = NETS[name](), torch.randn(9, 6)
    parameters = dict(net.named_parameters())

    def values(logits):
        return F.log_softmax(logits, 1) * torch.arange(1.0, 4.0)

    found = mean_powers(net, parameters, x.split(4), values, power)
    expected = {key: torch.zeros_like(p) for key, p in parameters.items()}
    net.eval()
    for row in x:
        for k in range(3):
            gradients = torch.autograd.grad(values(net(row[None]))[0, k], parameters.values(), allow_unused=True)
            for total, gradient in zip(expected.values(), gradients, strict=True):
                total += 0 if gradient is None else gradient.abs() ** power / len(x)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value)
        assert value.abs().sum() > 0 or key.startswith("heads.1")


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 6), nn.Linear(6, 6)

    def forward(self, tokens, mask, scale):
        return (self.layer(self.table(tokens)) * mask[..., None]).sum(1) * scale


def test_a_mapping_gives_what_its_examples_give():
    """The scale, [1, 6], is no row: it goes along with every example."""
    net = HeadedNet(Keywords(), 6, [3])
    tokens, mask, scale = torch.randint(5, (7, 4)), torch.randint(2, (7, 4)).double(), torch.rand(1, 6)
    batch = {"tokens": tokens, "mask": mask, "scale": scale}
    found = mean_powers(net, dict(net.named_parameters()), [batch], lambda logits: logits, 2)
    one_by_one = [{"tokens": tokens[i : i + 1], "mask": mask[i : i + 1], "scale": scale} for i in range(7)]
    for name, parameter in net.named_parameters():
        wanted = 0
        for example in one_by_one:
            for value in net(example)[0]:
                wanted = wanted + torch.autograd.grad(value, parameter, retain_graph=True)[0].square() / 7
        torch.testing.assert_close(found[name], wanted)


def test_only_the_parameters_asked_for_are_looked_at():
    net = mlp((6,), [3, 2])
    asked = {"trunk.1.bias": net.trunk[1].bias}
    assert mean_powers(net, asked, [torch.randn(4, 6)], lambda logits: logits, 2).keys() == asked.keys()
    assert all(p.grad is None for p in net.parameters())


def test_some_examples_are_chosen_at_random_each_at_most_once():
    x = torch.arange(100.0).view(50, 2)
    data = Given(x, torch.zeros(50), batch_size=8)
    chosen = [torch.cat(list(some_inputs(data, 20, torch.Generator().manual_seed(seed)))) for seed in (0, 0, 1)]
    assert torch.equal(chosen[0], chosen[1])
    assert not torch.equal(chosen[0], chosen[2])
    rows = {tuple(row) for row in chosen[0].tolist()}
    assert len(rows) == 20
    assert rows <= {tuple(row) for row in x.tolist()}
    for everything in (0, 50, 1000):
        assert torch.equal(torch.cat(list(some_inputs(data, everything, torch.Generator()))), x)
