"""A model as an ONNX file, for programs that have neither this package nor PyTorch.

The graph leads from raw input, uint8 images [rows, channels, height, width] or float32 rows, to calibrated class
probabilities: the mean over the same weight samples as in `predict`. Images for a trunk that takes any size are brought
to its side, in colour, by whoever asks. With a frozen trunk the graph has the posterior of
the head, with ucb-ng the weights of every sample; with several heads all of them are asked, and the least uncertain one
has the say, by the same rule. What it does not say is "unsure".

The file is put in place only after onnxruntime has answered like this package.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import ucb
from ucb.bayes.layers import BayesConv, BayesGroupNorm, BayesLayer, BayesLinear
from ucb.bayes.layers.base import Weights
from ucb.bayes.passes import Pass
from ucb.incremental.bayesian_net import SAMPLES, BayesianNetModel
from ucb.incremental.frozen import FrozenTrunkModel, draw_head_noise, split_rows
from ucb.incremental.model import Model
from ucb.incremental.predict import predict_batch
from ucb.incremental.trunks import FAR, ImageTrunk, RowTrunk
from ucb.nets import HeadedNet
from ucb.nets.fixed_features import SOFTNESS, WhitenedPatches
from ucb.seeds import generator_for
from ucb.storage import write_atomically

INPUT, OUTPUT, ENDING = "x", "probabilities", ".onnx"
ASKED = 64
BATCHES = (1, 7)
"""Other numbers of rows than ``ASKED`` that are tried: the graph must not depend on it."""
CLOSE = 1e-4
"""Probabilities that differ by more than this are not the same answer."""
OPSET, IR_VERSION = 17, 8
"""Old enough for every runtime of the last years."""
LARGEST = 2_000_000_000
"""An ONNX file without files beside it is shorter than 2 GiB."""
RESIZED = "whoever asks brings them, bilinearly and with antialiasing, to"
SMALLEST = torch.finfo(torch.float32).tiny
"""Below it a probability has a logarithm that no longer counts."""


class ExportedModel(NamedTuple):
    """What came of an export."""

    path: Path
    bytes: int
    difference: float
    """The largest difference of a probability between onnxruntime and this package, on made-up inputs."""


def export(model: Model, path: str | Path) -> ExportedModel:
    """Write a model as an ONNX file, checked with onnxruntime before it is put in place."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if path.suffix.lower() != ENDING:
        raise ValueError(f"{path} must end in {ENDING}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    load_library("onnxruntime")
    data = to_onnx(model)
    difference = largest_difference(model, data)
    if not difference <= CLOSE:
        raise RuntimeError(f"onnxruntime answers otherwise than ucb, by up to {difference:.2g}: nothing was written")
    write_atomically(path, data)
    return ExportedModel(path, len(data), difference)


def to_onnx(model: Model) -> bytes:
    """Return a model as the bytes of an ONNX file."""
    learner, graph = model.known, Graph()
    assert model.shape is not None
    if model.kinds is not None:
        said = "it learnt a table with text, dates or missing values, which an ONNX file does not turn into numbers"
        raise ValueError(f"the model cannot be exported: {said}")
    if isinstance(learner, FrozenTrunkModel):
        logits = add_frozen_trunk(graph, learner, model.shape)
    else:
        logits = add_bayesian_net(graph, learner, model.shape)
    each = graph.node("Softmax", graph.node("Mul", logits, model.calibration.scale), axis=-1)
    made = graph.node("ReduceMean", each, axes=[0], keepdims=0)
    return graph.close(model.shape, made, len(model.classes), _describe(model))


def largest_difference(model: Model, data: bytes) -> float:
    """Return by how much probabilities of onnxruntime differ from ours, in batches of several sizes."""
    runtime = load_library("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    assert model.shape is not None
    x = make_inputs(model.shape, _measure_rows(model))
    found = 0.0
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        answers = [session.run([OUTPUT], {INPUT: x[:rows].numpy()})[0] for rows in (len(x), *BATCHES)]
    except Exception as error:  # a graph of another's trunk may not be for any number of rows
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise RuntimeError(f"onnxruntime cannot run the exported model: {said}") from error
    for rows, theirs in zip((len(x), *BATCHES), answers, strict=True):
        ours = predict_batch(model, x[:rows]).prediction.probabilities.cpu()
        if theirs.shape != ours.shape:
            return math.inf
        found = max(found, float((torch.from_numpy(theirs) - ours).abs().nan_to_num(nan=math.inf).max()))
    return found


def make_inputs(shape: Sequence[int], usual: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return inputs of all kinds: images from smooth to rough and from dark to bright, or rows near and far."""
    generator = generator_for("made up", *shape)
    if len(shape) == 1:
        mean, spread = (torch.zeros(1), torch.ones(1)) if usual is None else usual
        reach = torch.logspace(-1, 2, ASKED)[:, None]
        return (mean + spread * reach * torch.randn(ASKED, *shape, generator=generator)).float()
    images = []
    for number in range(ASKED):
        coarse = [max(1, side >> number % 4) for side in shape[1:]]
        noise = torch.rand(1, shape[0], *coarse, generator=generator)
        smooth = F.interpolate(noise, tuple(shape[1:]), mode="bilinear", align_corners=False)
        images.append((255 * smooth * (number + 1) / ASKED).round())
    images[0].zero_()
    images[1].fill_(255)
    return torch.cat(images).to(torch.uint8)


def _measure_rows(model: Model) -> tuple[Tensor, Tensor] | None:
    """Return mean and spread of the rows of the first wave, as the model has noted them."""
    learner = model.known
    source = learner.trunk if isinstance(learner, FrozenTrunkModel) else learner
    if len(model.shape or ()) != 1 or not isinstance(source, RowTrunk | BayesianNetModel):
        return None
    return source.mean.cpu(), source.spread.cpu()


def _describe(model: Model) -> dict[str, str]:
    facts = {
        "classes": model.classes,
        "shape": list(model.shape or ()),
        "columns": model.columns,
        "method": model.method,
        "trunk": model.trunk if isinstance(model.trunk, str) else None,
        "images": f"{RESIZED} {model.shape[1]} x {model.shape[2]}" if model.resizes and model.shape else None,
        "ucb_version": ucb.__version__,
        "about": "calibrated class probabilities, averaged over weight samples; it does not tell when it is unsure",
    }
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return {n: fact if isinstance(fact, str) else json.dumps(fact, ensure_ascii=False) for n, fact in known.items()}


def load_library(name: str) -> Any:
    """Return onnx or onnxruntime; if it is missing, say in one sentence how to get it."""
    try:
        return import_module(name)
    except ImportError:
        raise RuntimeError(f"exporting needs {name}: install it with `pip install 'ucb[onnx]'`") from None


class Graph:
    """An ONNX graph under construction: each node is known by the name of what it returns; ``close`` ends it."""

    def __init__(self) -> None:
        self._onnx = load_library("onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._bytes = 0

    def constant(self, value: Tensor | float) -> str:
        """Add numbers; floating ones are kept in single precision."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        self._count(array.nbytes)
        name = f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, kind: str, *inputs: str | Tensor | float, **attributes: Any) -> str:
        """Add an operation on earlier results, which have names, and on constants; return the name of its result."""
        given = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, given, [name], name, **attributes))
        return name

    def merge(self, content: bytes, x: str) -> str:
        """Add the nodes of another ONNX file, whose only input is ``x``; return the name of its first output."""
        other = self._onnx.load_from_string(content)
        version = {each.domain: each.version for each in other.opset_import}.pop("")
        if version != OPSET:
            other = self._onnx.version_converter.convert_version(other, OPSET)
        if other.functions or any(node.domain not in ("", "ai.onnx") for node in other.graph.node):
            raise ValueError("it has operations that are not ONNX's own")
        graph = self._onnx.compose.add_prefix(other, f"m{len(self._nodes)}.").graph
        constants = {each.name for each in graph.initializer}
        (source,) = (each.name for each in graph.input if each.name not in constants)
        self._count(other.ByteSize())
        self._nodes += [self._onnx.helper.make_node("Identity", [x], [source]), *graph.node]
        self._constants += graph.initializer
        return str(graph.output[0].name)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > LARGEST:
            raise ValueError("the model is too large for an ONNX file, which ends at 2 GB")

    def close(self, shape: Sequence[int], result: str, classes: int, facts: dict[str, str]) -> bytes:
        """Return the file: any number of rows of uint8 images or float32 numbers become rows of ``result``."""
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        self._nodes.append(helper.make_node("Identity", [result], [OUTPUT], OUTPUT))
        kind = kinds.UINT8 if len(shape) == 3 else kinds.FLOAT
        source = helper.make_tensor_value_info(INPUT, kind, ["rows", *shape])
        output = helper.make_tensor_value_info(OUTPUT, kinds.FLOAT, ["rows", classes])
        graph = helper.make_graph(self._nodes, "ucb", [source], [output], self._constants)
        versions = {"opset_imports": [helper.make_opsetid("", OPSET)], "ir_version": IR_VERSION}
        model = helper.make_model(graph, producer_name="ucb", **versions)
        helper.set_model_props(model, facts)
        data: bytes = model.SerializeToString()
        self._onnx.checker.check_model(data, full_check=True)
        return data


def add_frozen_trunk(graph: Graph, learner: FrozenTrunkModel, shape: Sequence[int]) -> str:
    """Add trunk and head; return the scores of the classes [samples, rows, classes]."""
    trunk, posterior = learner.trunk, learner.posterior
    if isinstance(trunk, ImageTrunk):
        features = _add_patches(graph, trunk, shape)
    elif isinstance(trunk, RowTrunk):
        features = _add_rows(graph, trunk, shape)
    else:
        from ucb.incremental.onnx_trunks import add_given_trunk

        features = add_given_trunk(graph, trunk, INPUT, shape)
    if learner.grid is not None:
        whole = graph.node("Round", graph.node("Mul", features, 2.0**learner.grid))
        features = graph.node("Mul", whole, 2.0**-learner.grid)
    weights = posterior.weights * posterior.balance
    mean = graph.node("Gemm", features, weights[:-1], weights[-1])
    spread = graph.node("Sqrt", _add_length_squared(graph, features, posterior.inverse_factor))
    noise = draw_head_noise(len(posterior.noise)).to(weights) * posterior.noise.sqrt() * posterior.balance
    return graph.node("Add", mean, graph.node("Mul", spread, noise))


def _add_length_squared(graph: Graph, features: str, triangle: Tensor) -> str:
    """Return |triangle @ phi|^2 of each row, where phi are the features and a 1, in blocks as `predict` has them."""
    parts = []
    for first, last in split_rows(len(triangle)):
        columns = min(last, len(triangle) - 1)
        some = graph.node("Slice", features, *(torch.tensor([side]) for side in (0, columns, 1)))
        block = triangle[first:last]
        product = graph.node("Gemm", some, block[:, :columns].T, block[:, -1])
        square = graph.node("Mul", product, product)
        parts.append(graph.node("ReduceSum", square, torch.tensor([1]), keepdims=1))
    return graph.node("Sum", *parts)


def add_bayesian_net(graph: Graph, learner: BayesianNetModel, shape: Sequence[int]) -> str:
    """Add the net under each sample, and how its heads are combined: return [samples, rows, classes].

    A class has the greatest log p - entropy of the heads that know it, where the entropy is that of the mean p.
    """
    numbers = graph.node("Sub", _add_fractions(graph, shape), learner.mean)
    numbers = graph.node("Clip", graph.node("Div", numbers, learner.spread), -10.0, 10.0)
    answers = _add_samples(graph, learner.method.net, numbers)
    said, knows, begin = [], dict[int, list[int]](), 0
    for head in learner.heads:
        columns = torch.arange(begin, begin + len(head))
        own = graph.node("Gather", answers, columns, axis=2)
        log_p = graph.node("LogSoftmax", own, axis=-1)
        mean = graph.node("ReduceMean", graph.node("Exp", log_p), axes=[0], keepdims=0)
        p_log_p = graph.node("Mul", mean, graph.node("Log", graph.node("Max", mean, SMALLEST)))
        minus_entropy = graph.node("ReduceSum", p_log_p, torch.tensor([1]), keepdims=1)
        said.append(graph.node("Add", log_p, minus_entropy))
        for column, number in zip(columns.tolist(), head, strict=True):
            knows.setdefault(number, []).append(column)
        begin += len(head)
    most = max(len(columns) for columns in knows.values())
    table = [columns + columns[-1:] * (most - len(columns)) for _, columns in sorted(knows.items())]
    voices = graph.node("Concat", *said, axis=2)
    return graph.node("ReduceMax", graph.node("Gather", voices, torch.tensor(table), axis=2), axes=[3], keepdims=0)


def _add_fractions(graph: Graph, shape: Sequence[int]) -> str:
    """Return rows as they are, and pixels from 0 to 1."""
    return INPUT if len(shape) == 1 else graph.node("Div", graph.node("Cast", INPUT, to=1), 255.0)


def _add_rows(graph: Graph, trunk: RowTrunk, shape: Sequence[int]) -> str:
    numbers = graph.node("Flatten", _add_fractions(graph, shape))
    standard = graph.node("Div", graph.node("Sub", numbers, trunk.mean), trunk.spread)
    standard = graph.node("Clip", standard, -FAR, FAR)
    combined = graph.node("Relu", graph.node("Gemm", standard, trunk.directions, trunk.offsets))
    return graph.node("Concat", standard, combined, axis=1) if trunk.shows_numbers else combined


def _add_patches(graph: Graph, trunk: ImageTrunk, shape: Sequence[int]) -> str:
    """Add whitened patches, as :class:`WhitenedPatches` does it."""
    patches: WhitenedPatches = trunk.patches
    size, shrink = patches.size, trunk.shrink
    pixels = _add_fractions(graph, shape)
    if shrink > 1:
        pixels = graph.node("AveragePool", pixels, kernel_shape=[shrink] * 2, strides=[shrink] * 2)
    height, width = (side // shrink - size + 1 for side in shape[1:])

    def mean_of(values: str) -> str:
        pooled = graph.node("AveragePool", values, kernel_shape=[size] * 2, strides=[1, 1])
        return graph.node("ReduceMean", pooled, axes=[1], keepdims=1)

    mean, square = mean_of(pixels), mean_of(graph.node("Mul", pixels, pixels))
    variance = graph.node("Relu", graph.node("Sub", square, graph.node("Mul", mean, mean)))
    norm = graph.node("Sqrt", graph.node("Mul", variance, float(patches.filters[0].numel())))
    answers = graph.node("Conv", pixels, patches.filters)
    answers = graph.node("Div", answers, graph.node("Add", norm, SOFTNESS))
    answers = graph.node("Reshape", answers, torch.tensor([0, 0, -1]))
    # The mean over each cell of a grid as a matrix: what pooling makes of an image with one bright pixel.
    bright = torch.eye(height * width, dtype=torch.float64).view(-1, 1, height, width)
    cells = F.adaptive_avg_pool2d(bright, patches.cells).flatten(1)
    both = []
    for signed in (answers, graph.node("Neg", answers)):
        above = graph.node("Relu", graph.node("Sub", signed, patches.threshold))
        both.append(graph.node("MatMul", above, cells))
    return graph.node("Flatten", graph.node("Concat", *both, axis=1))


class _Tracer(fx.Tracer):
    """Looks into our own modules, and takes layers as they are."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, BayesLayer) or super().is_leaf_module(m, module_qualified_name)


@torch.no_grad()
def _add_samples(graph: Graph, net: HeadedNet, x: str) -> str:
    """Add a net under each sample, all heads side by side; return [samples, rows, answers]."""
    with net.eval().using(None):
        walked = _Tracer().trace(net)
    generator = generator_for("opinion")
    said = [_add_net(graph, net, walked, x, Pass("weights", generator=generator)) for _ in range(SAMPLES)]
    first = graph.constant(torch.tensor([0]))
    return graph.node("Concat", *(graph.node("Unsqueeze", one, first) for one in said), axis=0)


def _add_net(graph: Graph, net: HeadedNet, walked: fx.Graph, x: str, p: Pass) -> str:
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


def _convolution(graph: Graph, layer: BayesConv, x: str, weights: Weights) -> str:
    if layer.wrap is not None or isinstance(layer.padding, str):
        raise ValueError("a convolution that pads with anything but zeros cannot be exported")
    steps = {"strides": list(layer.stride), "pads": [*layer.padding] * 2, "dilations": list(layer.dilation)}
    return graph.node("Conv", x, *weights.values(), **steps, group=layer.groups)


def _group_norm(graph: Graph, layer: BayesGroupNorm, x: str, weights: Weights) -> str:
    """Normalise each group as if it were a channel, for which there is an operation."""
    one, zero = torch.ones(layer.groups), torch.zeros(layer.groups)
    grouped = graph.node("Reshape", x, torch.tensor([0, layer.groups, -1]))
    normal = graph.node("InstanceNormalization", grouped, one, zero, epsilon=layer.eps)
    y = graph.node("Reshape", normal, graph.node("Shape", x))
    for name, kind in ("weight", "Mul"), ("bias", "Add"):
        if name in weights:
            y = graph.node(kind, y, weights[name].view(-1, 1, 1))
    return y


def _max_pool(graph: Graph, layer: nn.MaxPool2d, x: str, _: Weights) -> str:
    kernel, stride = ([side] * 2 if isinstance(side, int) else list(side) for side in (layer.kernel_size, layer.stride))
    if layer.padding or layer.dilation != 1 or layer.ceil_mode:
        raise ValueError("only plain pooling can be exported")
    return graph.node("MaxPool", x, kernel_shape=kernel, strides=stride)


def _global_pool(graph: Graph, layer: nn.AdaptiveAvgPool2d, x: str, _: Weights) -> str:
    if layer.output_size not in (1, (1, 1)):
        raise ValueError("only pooling of the whole image can be exported")
    return graph.node("GlobalAveragePool", x)


_LAYERS: dict[type[nn.Module], Callable[[Graph, Any, str, Weights], str]] = {
    BayesLinear: lambda graph, _, x, weights: graph.node("Gemm", x, *weights.values(), transB=1),
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
