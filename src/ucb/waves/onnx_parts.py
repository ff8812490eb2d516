"""Trunks, heads and nets of a model as ONNX operations, under the weight samples that `predict` averages over."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from ucb.bayes.layers import BayesConv, BayesGroupNorm, BayesLayer, BayesLinear
from ucb.bayes.layers.base import Weights
from ucb.bayes.passes import Pass
from ucb.nets import HeadedNet
from ucb.nets.fixed_features import SOFTNESS, WhitenedPatches
from ucb.seeds import generator_for
from ucb.waves.fixed import FixedWay, blocks_of, noise_of_samples
from ucb.waves.ongoing import SAMPLES, OngoingWay
from ucb.waves.onnx_graph import Graph
from ucb.waves.trunks import FAR, ImageTrunk, RowTrunk

SMALLEST = torch.finfo(torch.float32).tiny
"""Below it a probability has a logarithm that no longer counts."""


def fixed_logits(graph: Graph, way: FixedWay, shape: Sequence[int], x: str) -> str:
    """Add trunk and head; return the scores of the classes [samples, rows, classes]."""
    trunk, solved = way.trunk, way.solved
    features = _patches(graph, trunk, shape, x) if isinstance(trunk, ImageTrunk) else _rows(graph, trunk, shape, x)
    weights = solved.weights * solved.balance
    mean = graph.node("Gemm", features, graph.constant(weights[:-1]), graph.constant(weights[-1]))
    spread = graph.node("Sqrt", _length_squared(graph, features, solved.inverse_factor))
    noise = noise_of_samples(len(solved.noise)).to(weights) * solved.noise.sqrt() * solved.balance
    return graph.node("Add", mean, graph.node("Mul", spread, graph.constant(noise)))


def _length_squared(graph: Graph, features: str, triangle: Tensor) -> str:
    """Return |triangle @ phi|^2 of each row, where phi are the features and a 1, in blocks as `predict` has them."""
    parts = []
    for first, last in blocks_of(len(triangle)):
        columns = min(last, len(triangle) - 1)
        some = graph.node("Slice", features, *(graph.constant(torch.tensor([side])) for side in (0, columns, 1)))
        block = triangle[first:last]
        product = graph.node("Gemm", some, graph.constant(block[:, :columns].T), graph.constant(block[:, -1]))
        square = graph.node("Mul", product, product)
        parts.append(graph.node("ReduceSum", square, graph.constant(torch.tensor([1])), keepdims=1))
    return graph.node("Sum", *parts)


def ongoing_logits(graph: Graph, way: OngoingWay, shape: Sequence[int], x: str) -> str:
    """Add the net under each sample, and the rule of :mod:`ucb.waves.ongoing`: return [samples, rows, classes].

    A class has the greatest log p - entropy of the heads that know it, where the entropy is that of the mean p.
    """
    numbers = graph.node("Sub", _fractions(graph, shape, x), graph.constant(way.mean))
    numbers = _clipped(graph, graph.node("Div", numbers, graph.constant(way.spread)), -10.0, 10.0)
    answers = _answers(graph, way.method.net, numbers)
    said, knows, begin = [], dict[int, list[int]](), 0
    for head in way.heads:
        columns = torch.arange(begin, begin + len(head))
        own = graph.node("Gather", answers, graph.constant(columns), axis=2)
        log_p = graph.node("LogSoftmax", own, axis=-1)
        mean = graph.node("ReduceMean", graph.node("Exp", log_p), axes=[0], keepdims=0)
        p_log_p = graph.node("Mul", mean, graph.node("Log", graph.with_number("Max", mean, SMALLEST)))
        minus_entropy = graph.node("ReduceSum", p_log_p, graph.constant(torch.tensor([1])), keepdims=1)
        said.append(graph.node("Add", log_p, minus_entropy))
        for column, number in zip(columns.tolist(), head, strict=True):
            knows.setdefault(number, []).append(column)
        begin += len(head)
    most = max(len(columns) for columns in knows.values())
    table = [columns + columns[-1:] * (most - len(columns)) for _, columns in sorted(knows.items())]
    voices = graph.node("Concat", *said, axis=2)
    return graph.node(
        "ReduceMax", graph.node("Gather", voices, graph.constant(torch.tensor(table)), axis=2), axes=[3], keepdims=0
    )


def _fractions(graph: Graph, shape: Sequence[int], x: str) -> str:
    """Return rows as they are, and pixels from 0 to 1."""
    if len(shape) == 1:
        return x
    return graph.with_number("Div", graph.node("Cast", x, to=1), 255)


def _clipped(graph: Graph, x: str, least: float, most: float) -> str:
    return graph.node("Clip", x, graph.constant(least), graph.constant(most))


def _rows(graph: Graph, trunk: RowTrunk, shape: Sequence[int], x: str) -> str:
    numbers = graph.node("Flatten", _fractions(graph, shape, x))
    standard = graph.node("Sub", numbers, graph.constant(trunk.mean))
    standard = _clipped(graph, graph.node("Div", standard, graph.constant(trunk.spread)), -FAR, FAR)
    combined = graph.node("Gemm", standard, graph.constant(trunk.directions), graph.constant(trunk.offsets))
    combined = graph.node("Relu", combined)
    return graph.node("Concat", standard, combined, axis=1) if trunk.shows_numbers else combined


def _patches(graph: Graph, trunk: ImageTrunk, shape: Sequence[int], x: str) -> str:
    """Add whitened patches, as :class:`WhitenedPatches` does it."""
    patches: WhitenedPatches = trunk.patches
    size, shrink = patches.size, trunk.shrink
    pixels = _fractions(graph, shape, x)
    if shrink > 1:
        pixels = graph.node("AveragePool", pixels, kernel_shape=[shrink] * 2, strides=[shrink] * 2)
    height, width = (side // shrink - size + 1 for side in shape[1:])

    def mean_of(values: str) -> str:
        pooled = graph.node("AveragePool", values, kernel_shape=[size] * 2, strides=[1, 1])
        return graph.node("ReduceMean", pooled, axes=[1], keepdims=1)

    mean, square = mean_of(pixels), mean_of(graph.node("Mul", pixels, pixels))
    variance = graph.node("Relu", graph.node("Sub", square, graph.node("Mul", mean, mean)))
    norm = graph.node("Sqrt", graph.with_number("Mul", variance, patches.filters[0].numel()))
    answers = graph.node("Conv", pixels, graph.constant(patches.filters))
    answers = graph.node("Div", answers, graph.with_number("Add", norm, SOFTNESS))
    answers = graph.reshaped(answers, 0, 0, -1)
    cells = _cells(height, width, patches.cells)
    both = []
    for signed in (answers, graph.node("Neg", answers)):
        above = graph.node("Relu", graph.with_number("Sub", signed, patches.threshold))
        both.append(graph.node("MatMul", above, graph.constant(cells)))
    return graph.node("Flatten", graph.node("Concat", *both, axis=1))


def _cells(height: int, width: int, cells: int) -> Tensor:
    """Return the mean over each cell of a grid as a matrix: what pooling makes of an image with one bright pixel."""
    pixels = torch.eye(height * width, dtype=torch.float64).view(-1, 1, height, width)
    return F.adaptive_avg_pool2d(pixels, cells).flatten(1)


class _Tracer(fx.Tracer):
    """Looks into our own modules, and takes layers as they are."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, BayesLayer) or super().is_leaf_module(m, module_qualified_name)


@torch.no_grad()
def _answers(graph: Graph, net: HeadedNet, x: str) -> str:
    """Add a net under each sample, all heads side by side; return [samples, rows, answers]."""
    with net.eval().using(None):
        walked = _Tracer().trace(net)
    generator = generator_for("opinion")
    said = [_net(graph, net, walked, x, Pass("weights", generator=generator)) for _ in range(SAMPLES)]
    first = graph.constant(torch.tensor([0]))
    return graph.node("Concat", *(graph.node("Unsqueeze", one, first) for one in said), axis=0)


def _net(graph: Graph, net: HeadedNet, walked: fx.Graph, x: str, p: Pass) -> str:
    """Add a net with the weights of a pass; its layers draw them in the order in which the net asks them."""
    modules, names = dict(net.named_modules()), dict[fx.Node, str]()
    for node in walked.nodes:
        if node.op == "placeholder":
            names[node] = x
        elif node.op == "output":
            return names[node.args[0]]
        elif node.op == "call_module":
            layer = modules[str(node.target)]
            if type(layer) not in _LAYERS:
                raise ValueError(f"a {type(layer).__name__} cannot be exported")
            weights = layer.weights_of(p) if isinstance(layer, BayesLayer) else {}
            names[node] = _LAYERS[type(layer)](graph, layer, names[node.args[0]], weights)
        elif node.op == "call_function" and node.target in _FUNCTIONS:
            given = node.args[0] if node.target is torch.cat else node.args
            names[node] = _FUNCTIONS[node.target](graph, *(names[each] for each in given))
        else:
            raise ValueError(f"{node.target} cannot be exported")
    raise ValueError("the net returns nothing")


def _constants(graph: Graph, weights: Weights) -> list[str]:
    return [graph.constant(weights[name]) for name in ("weight", "bias") if name in weights]


def _convolution(graph: Graph, layer: BayesConv, x: str, weights: Weights) -> str:
    if layer.wrap is not None or isinstance(layer.padding, str):
        raise ValueError("a convolution that pads with anything but zeros cannot be exported")
    return graph.node(
        "Conv",
        x,
        *_constants(graph, weights),
        strides=list(layer.stride),
        pads=[*layer.padding, *layer.padding],
        dilations=list(layer.dilation),
        group=layer.groups,
    )


def _group_norm(graph: Graph, layer: BayesGroupNorm, x: str, weights: Weights) -> str:
    """Normalise each group as if it were a channel, for which there is an operation."""
    one, zero = torch.ones(layer.groups), torch.zeros(layer.groups)
    grouped = graph.reshaped(x, 0, layer.groups, -1)
    normal = graph.node("InstanceNormalization", grouped, graph.constant(one), graph.constant(zero), epsilon=layer.eps)
    y = graph.node("Reshape", normal, graph.node("Shape", x))
    for name, kind in ("weight", "Mul"), ("bias", "Add"):
        if name in weights:
            y = graph.node(kind, y, graph.constant(weights[name].view(-1, 1, 1)))
    return y


def _max_pool(graph: Graph, layer: nn.MaxPool2d, x: str, _: Weights) -> str:
    kernel, stride = (
        [side, side] if isinstance(side, int) else list(side) for side in (layer.kernel_size, layer.stride)
    )
    if layer.padding or layer.dilation != 1 or layer.ceil_mode:
        raise ValueError("only plain pooling can be exported")
    return graph.node("MaxPool", x, kernel_shape=kernel, strides=stride)


def _global_pool(graph: Graph, layer: nn.AdaptiveAvgPool2d, x: str, _: Weights) -> str:
    if layer.output_size not in (1, (1, 1)):
        raise ValueError("only pooling of the whole image can be exported")
    return graph.node("GlobalAveragePool", x)


_LAYERS: dict[type[nn.Module], Callable[[Graph, Any, str, Weights], str]] = {
    BayesLinear: lambda graph, _, x, weights: graph.node("Gemm", x, *_constants(graph, weights), transB=1),
    BayesConv: _convolution,
    BayesGroupNorm: _group_norm,
    nn.MaxPool2d: _max_pool,
    nn.AdaptiveAvgPool2d: _global_pool,
    nn.ReLU: lambda graph, layer, x, weights: graph.node("Relu", x),
    nn.Flatten: lambda graph, layer, x, weights: graph.node("Flatten", x),
    nn.Dropout: lambda graph, layer, x, weights: x,
    nn.Identity: lambda graph, layer, x, weights: x,
}
_FUNCTIONS: dict[Any, Callable[..., str]] = {
    F.relu: lambda graph, x: graph.node("Relu", x),
    operator.add: lambda graph, x, y: graph.node("Add", x, y),
    torch.cat: lambda graph, *xs: graph.node("Concat", *xs, axis=-1),
}
