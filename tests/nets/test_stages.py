import pytest
import torch
from torch import nn

from ucb.nets import HeadedNet, mlp
from ucb.nets.stages import draw_weights, find_widest_factor, split


def conv_net(heads=(2, 2, 2)):
    """Two convolutions and a linear layer behind a flatten of 2 x 2 positions, for images of 8 x 8."""
    trunk = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(4, 6, 3, bias=False), nn.ReLU(), nn.Flatten()),
        nn.Linear(24, 10),
        nn.ReLU(),
        nn.Dropout(0.1),
    )
    return HeadedNet(trunk, 10, heads)


def test_a_trunk_becomes_stages_and_computes_the_same():
    net = conv_net()
    staged = split(net)
    assert [stage.units for stage in staged.stages] == [4, 6, 10]
    assert [stage.inputs for stage in staged.stages] == [1, 4, 6]
    assert [stage.positions for stage in staged.stages] == [1, 1, 4]
    assert [(head.inputs, head.units) for head in staged.heads] == [(10, 2)] * 3
    assert staged.size == sum(p.numel() for p in net.parameters())
    x = h = torch.randn(5, 1, 8, 8)
    net.eval()
    for stage in staged.stages:
        h = stage(h)
    assert torch.equal(h, net.trunk(x))
    staged = split(mlp((1, 8, 8), [2], [7, 5]))
    assert [type(module) for module in staged.stem] == [nn.Flatten]
    assert [stage.units for stage in staged.stages] == [7, 5]


def test_values_of_units_reach_their_features_and_weights():
    first, second, third = split(conv_net()).stages
    a, b = torch.rand(4), torch.rand(6)
    maps = first(torch.randn(3, 1, 8, 8))
    assert torch.equal(maps * first.over_features(a, maps), torch.einsum("bchw,c->bchw", maps, a))
    flat = second(maps)
    expected = torch.einsum("bcp,c->bcp", flat.view(3, 6, 4), b).reshape(3, 24)
    assert torch.equal(flat * second.over_features(b, flat), expected)
    c = torch.rand(10)
    factor = third.over_weights(c, b).expand_as(third.layer.weight)
    for unit in range(10):
        for feature in range(24):
            assert factor[unit, feature] == max(c[unit], b[feature // 4])
    assert second.over_weights(b, a).shape == (6, 4, 1, 1)


def test_a_layer_between_other_numbers_of_units_has_the_same_geometry():
    net = conv_net()
    first, second, third = split(net).stages
    convolution = second.layer_of(3, 5)
    assert (convolution.weight.shape, convolution.bias, convolution.kernel_size) == ((5, 3, 3, 3), None, (3, 3))
    assert first.layer_of(1, 2).padding == (1, 1)
    assert third.layer_of(5, 7).weight.shape == (7, 20)  # four positions a channel, as before
    assert third.layer_of(5, 7, bias=False).bias is None
    assert split(conv_net().double()).stages[0].layer_of(1, 2).weight.dtype == torch.float64


@pytest.mark.parametrize("make", [lambda: nn.Linear(30, 20), lambda: nn.Conv2d(3, 8, (3, 5))])
def test_fresh_weights_are_pytorchs_own(make):
    """The same random stream gives the same weights as PyTorch's constructors, up to the rounding of the bound."""
    torch.manual_seed(5)
    theirs, ours = make(), make()
    before = torch.get_rng_state()
    draw_weights(ours, torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


@pytest.mark.parametrize(
    ("trunk", "said"),
    [
        (nn.Linear(8, 4), "must be an nn.Sequential.*not a Linear"),
        (nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), "a BatchNorm1d cannot be split"),
        (nn.Sequential(nn.Linear(8, 4), nn.PReLU()), "a PReLU cannot be split"),
        (nn.Sequential(nn.Flatten()), "no linear or convolutional layer"),
        (nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten()), "in groups"),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.Linear(4, 4)), "where Linear.* follows 4 units"),
        (nn.Sequential(nn.Linear(8, 3), nn.Linear(4, 4)), "where Linear.* follows 3 units"),
        (nn.Sequential(*[nn.Linear(4, 4)] * 2), "one layer twice"),
    ],
)
def test_a_trunk_that_cannot_be_split_gets_one_sentence(trunk, said):
    with pytest.raises(ValueError, match=said):
        split(HeadedNet(trunk, 4, [2]))


def test_the_widest_factor_is_found():
    assert find_widest_factor(lambda f: int(1000 * f) ** 2, 250_000) == pytest.approx(0.5, abs=1e-2)
    assert int(1000 * find_widest_factor(lambda f: int(1000 * f) ** 2, 250_000)) == 500
    assert find_widest_factor(lambda f: 3, 3) == 1
    with pytest.raises(ValueError, match="too small: with one unit everywhere 4 weights are needed, not 3"):
        find_widest_factor(lambda f: 4, 3)
