"""EfficientNet-lite 0 to 2: small nets for photographs, whose features serve other tasks too.

EfficientNets (Tan and Le, 2019) are inverted bottlenecks (Sandler et al., 2018) in seven stages: a 1x1 convolution
widens, a depthwise one looks around, a 1x1 one narrows, and where the shape is kept the input is added. A net of the
family has a multiplier for the channels and one for the blocks of a stage. The lite ones have no squeeze-and-excitation
and ReLU6 instead of swish; stem, head and the numbers of blocks of the first and the last stage are not multiplied.

Convolutions pad like TensorFlow's SAME, where the nets were trained: at stride 2 and an even side there is one zero
more on the right and at the bottom. Parameters have the names under which the weights are published.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.checks import one_of

STEM, FEATURES, CLASSES = 32, 1280, 1000
DIVISOR = 8
"""Channels come in multiples of this."""
EPSILON = 1e-3
"""What batch normalisation adds to a variance."""


class Variant(NamedTuple):
    """What one net of the family differs in."""

    width: float
    """The multiplier of channels."""
    depth: float
    """The multiplier of blocks."""
    side: int
    """The side of the images on which it was trained."""


VARIANTS = {
    "efficientnet-lite0": Variant(1.0, 1.0, 224),
    "efficientnet-lite1": Variant(1.0, 1.1, 240),
    "efficientnet-lite2": Variant(1.1, 1.2, 260),
}


class _Stage(NamedTuple):
    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


class SameConv2d(nn.Conv2d):
    """A convolution whose output has ceil(side / stride) pixels a side, whatever the side."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolved images."""
        down, across = (self._zeros(x.shape[axis], axis) for axis in (-2, -1))
        even = (down // 2, across // 2)
        if down % 2 or across % 2:
            x, even = F.pad(x, (even[1], across - even[1], even[0], down - even[0])), (0, 0)
        return F.conv2d(x, self.weight, self.bias, self.stride, even, self.dilation, self.groups)

    def _zeros(self, side: int, axis: int) -> int:
        """Return how many zeros a side of the image needs in all."""
        kernel, stride = self.kernel_size[axis], self.stride[axis]
        return max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)


class _Block(nn.Module):
    """An inverted bottleneck."""

    def __init__(self, inputs: int, outputs: int, stage: _Stage, stride: int) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        self.is_widening, self.has_shortcut = stage.expansion > 1, stride == 1 and inputs == outputs
        if self.is_widening:
            self._expand_conv, self._bn0 = SameConv2d(inputs, wide, 1), _normalise(wide)
        self._depthwise_conv, self._bn1 = SameConv2d(wide, wide, stage.kernel, stride, wide), _normalise(wide)
        self._project_conv, self._bn2 = SameConv2d(wide, outputs, 1), _normalise(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the block makes of images."""
        y = F.relu6(self._bn0(self._expand_conv(x)), inplace=True) if self.is_widening else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)), inplace=True)
        y = cast(Tensor, self._bn2(self._project_conv(y)))
        return y.add_(x) if self.has_shortcut else y


class EfficientNetLite(nn.Module):
    """The net called ``name``: images [n, 3, H, W] become logits of ImageNet's classes, or 1,280 ``features``."""

    def __init__(self, name: str = "efficientnet-lite0") -> None:
        super().__init__()
        one_of("name", name, tuple(VARIANTS))
        variant = VARIANTS[name]
        self._conv_stem, self._bn0 = SameConv2d(3, STEM, 3, 2), _normalise(STEM)
        blocks, channels = list[nn.Module](), STEM
        for number, stage in enumerate(_STAGES):
            outputs, is_fixed = _round_channels(variant.width * stage.channels), number in (0, len(_STAGES) - 1)
            for repeat in range(stage.blocks if is_fixed else math.ceil(variant.depth * stage.blocks)):
                blocks.append(_Block(channels, outputs, stage, 1 if repeat else stage.stride))
                channels = outputs
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = SameConv2d(channels, FEATURES, 1), _normalise(FEATURES)
        self._fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return cast(Tensor, self._fc(self.features(x)))

    def features(self, x: Tensor) -> Tensor:
        """Return the means of the last channels over the image."""
        x = F.relu6(self._bn0(self._conv_stem(x)), inplace=True)
        x = F.relu6(self._bn1(self._conv_head(self._blocks(x))), inplace=True)
        return x.mean((2, 3))


def _normalise(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON, momentum=0.01)


def _round_channels(channels: float) -> int:
    """Return the nearest multiple of 8."""
    return int(channels + DIVISOR / 2) // DIVISOR * DIVISOR


@torch.no_grad()
def fold_batch_norm(net: nn.Module) -> nn.Module:
    """Return a copy, for evaluation, whose convolutions do what the batch normalisation after them did.

    With running mean m and variance v, gamma (conv(x) - m) / sqrt(v + eps) + beta is a convolution with other weights
    and a bias. A normalisation belongs to the convolution that its module names just before it.
    """
    net = copy.deepcopy(net).eval()
    for module in list(net.modules()):
        before: nn.Module | None = None
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d) and isinstance(before, nn.Conv2d):
                _fold(before, child)
                setattr(module, name, nn.Identity())
            before = child
    return net


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    shift = -norm.running_mean.double() if conv.bias is None else conv.bias.double() - norm.running_mean.double()
    conv.weight.copy_(conv.weight.double() * scale[:, None, None, None])
    conv.bias = nn.Parameter((shift * scale + norm.bias.double()).to(conv.weight.dtype))
