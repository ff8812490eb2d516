"""Trunks that come ready as parts of an ONNX graph.

EfficientNet-lite and random features are written node by node. Of a user's module and of nets of other libraries
PyTorch's own exporter makes a graph, by watching them at work, and an ONNX file is one; such a graph becomes a part of
the whole. Whether it serves any number of images, and answers as the trunk does, is seen when onnxruntime is asked.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from ucb.incremental.library_nets import OnnxNet, say_first_line
from ucb.incremental.library_trunks import LibraryTrunk
from ucb.incremental.pretrained import LENGTH, NEAR_0, ModuleTrunk, PretrainedTrunk, ResizingTrunk
from ucb.incremental.random_features import SIZE, RandomFeatures
from ucb.incremental.trunks import Trunk
from ucb.nets.efficientnet_lite import EfficientNetLite, SameConv2d

if TYPE_CHECKING:
    from ucb.incremental.onnx import Graph


def add_given_trunk(graph: Graph, trunk: Trunk, x: str, shape: Sequence[int]) -> str:
    """Add a trunk that comes ready: examples ``x`` of a shape, as they are given, become rows of features."""
    if isinstance(trunk, RandomFeatures):
        z = add_given_trunk(graph, trunk.trunk, x, shape)
        combined = graph.node("Relu", graph.node("MatMul", z, SIZE * trunk.directions))
        return graph.node("Concat", z, combined, axis=1)
    z = _add_net(graph, trunk, x, shape)
    return _add_roots(graph, z) if isinstance(trunk, ResizingTrunk) and trunk.is_rooted else z


def _add_roots(graph: Graph, z: str) -> str:
    """Add ``take_roots``."""
    root = graph.node("Sqrt", graph.node("Add", graph.node("Abs", z), NEAR_0))
    roots = graph.node("Mul", graph.node("Sign", z), graph.node("Sub", root, math.sqrt(NEAR_0)))
    length = graph.node("ReduceL2", roots, axes=[1], keepdims=1)
    return graph.node("Mul", roots, graph.node("Div", LENGTH, graph.node("Max", length, 1e-9)))


def _add_net(graph: Graph, trunk: Trunk, x: str, shape: Sequence[int]) -> str:
    """Add what a net shows of examples."""
    if len(shape) == 3:
        x = graph.node("Cast", x, to=1)
    if isinstance(trunk, ResizingTrunk):
        x = graph.node("Div", graph.node("Sub", x, trunk.mean), trunk.spread)
    elif len(shape) == 3:
        x = graph.node("Div", x, 255.0)
    if isinstance(trunk, PretrainedTrunk):
        return _add_efficientnet(graph, cast(EfficientNetLite, trunk.net), x, trunk.side)
    if not isinstance(trunk, LibraryTrunk | ModuleTrunk):
        raise ValueError(f"the model cannot be exported: its trunk ({trunk.about}) has no ONNX form")
    try:
        if not isinstance(trunk.net, OnnxNet):
            return graph.node("Flatten", graph.merge(_trace(trunk.net, shape), x))
        if trunk.net.rows is not None:
            raise ValueError(f"it takes {trunk.net.rows} images at a time, no more and no fewer")
        if trunk.net.is_last:
            x = graph.node("Transpose", x, perm=[0, 2, 3, 1])
        return graph.node("Flatten", graph.merge(trunk.net.content, x))
    except Exception as error:  # an exporter may say anything
        said = f"the model cannot be exported: its trunk ({trunk.about}) has no ONNX form"
        raise ValueError(f"{said}: {say_first_line(error)}") from error


def _add_efficientnet(graph: Graph, net: EfficientNetLite, x: str, side: int) -> str:
    """Add a net whose normalisation is folded into its convolutions."""

    def convolve(layer: nn.Module, x: str, side: int, clips: bool = True) -> tuple[str, int]:
        assert isinstance(layer, SameConv2d)
        assert layer.bias is not None
        zeros, stride = layer._zeros(side, 0), layer.stride[0]
        pads = [zeros // 2] * 2 + [zeros - zeros // 2] * 2
        y = graph.node("Conv", x, layer.weight, layer.bias, strides=[stride] * 2, pads=pads, group=layer.groups)
        return (graph.node("Clip", y, 0.0, 6.0) if clips else y), -(-side // stride)

    y, side = convolve(net._conv_stem, x, side)
    for block in net._blocks:
        inner: Any = block
        before = y
        if inner.is_widening:
            y, side = convolve(inner._expand_conv, y, side)
        y, side = convolve(inner._depthwise_conv, y, side)
        y, side = convolve(inner._project_conv, y, side, clips=False)
        if inner.has_shortcut:
            y = graph.node("Add", y, before)
    y, side = convolve(net._conv_head, y, side)
    return graph.node("Flatten", graph.node("GlobalAveragePool", y))


def _trace(net: nn.Module, shape: Sequence[int]) -> bytes:
    """Return the graph of a net as PyTorch sees it at work on two examples."""
    from ucb.incremental.onnx import OPSET

    content, like = io.BytesIO(), next(iter(net.parameters()), torch.zeros(0))
    examples = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(like.device)
    how: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": {0: "rows"}}, "opset_version": OPSET}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # it warns of what the comparison with the trunk itself would show
        torch.onnx.export(net, (examples,), cast(Any, content), dynamo=False, **how)
    return content.getvalue()
