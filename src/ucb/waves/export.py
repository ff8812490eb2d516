"""A model as an ONNX file, for programs that have neither this package nor PyTorch.

The graph leads from raw input, uint8 images [rows, channels, height, width] or float32 rows, to calibrated class
probabilities: the mean over the same weight samples as in `predict`. Of the fixed way the graph has the posterior of
the head, of ucb-ng the weights of every sample; with several heads all of them are asked, and the least uncertain one
has the say, by the same rule. What it does not say is "unsure".

The file is put in place only after onnxruntime has answered like this package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import ucb
from ucb.seeds import generator_for
from ucb.storage import write_atomically
from ucb.waves.fixed import FixedWay
from ucb.waves.onnx_graph import Graph, library
from ucb.waves.onnx_parts import fixed_logits, ongoing_logits
from ucb.waves.predicting import answers_to
from ucb.waves.trunks import ImageTrunk

if TYPE_CHECKING:
    from ucb.waves.model import Model

INPUT, OUTPUT, ENDING = "x", "probabilities", ".onnx"
ASKED = 64
BATCHES = (1, 7)
"""Other numbers of rows than ``ASKED`` that are tried: the graph must not depend on it."""
CLOSE = 1e-4
"""Probabilities that differ by more than this are not the same answer."""


class Exported(NamedTuple):
    """What came of an export."""

    path: Path
    bytes: int
    difference: float
    """The largest difference of a probability between onnxruntime and this package, on made-up inputs."""


def export(model: Model, path: str | Path) -> Exported:
    """Write a model as an ONNX file, checked with onnxruntime before it is put in place."""
    path = Path(path)
    _check_place(path)
    library("onnxruntime")
    data = to_onnx(model)
    difference = largest_difference(model, data)
    if not difference <= CLOSE:
        raise RuntimeError(f"onnxruntime answers otherwise than ucb, by up to {difference:.2g}: nothing was written")
    write_atomically(path, data)
    return Exported(path, len(data), difference)


def to_onnx(model: Model) -> bytes:
    """Return a model as the bytes of an ONNX file."""
    way, graph = model.known, Graph()
    assert model.shape is not None
    if isinstance(way, FixedWay):
        logits = fixed_logits(graph, way, model.shape, INPUT)
    else:
        logits = ongoing_logits(graph, way, model.shape, INPUT)
    each = graph.node("Softmax", graph.with_number("Mul", logits, model.calibration.scale), axis=-1)
    made = graph.node("ReduceMean", each, axes=[0], keepdims=0)
    dtype = torch.uint8 if len(model.shape) == 3 else torch.float32
    return graph.model((INPUT, dtype, model.shape), (made, OUTPUT, len(model.classes)), _facts(model))


def largest_difference(model: Model, data: bytes) -> float:
    """Return by how much probabilities of onnxruntime differ from ours, in batches of several sizes."""
    runtime = library("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    assert model.shape is not None
    x = made_up(model.shape, _rows_like(model))
    found = 0.0
    for rows in (len(x), *BATCHES):
        (theirs,) = session.run([OUTPUT], {INPUT: x[:rows].numpy()})
        ours = answers_to(model, x[:rows]).prediction.probabilities.cpu()
        found = max(found, float((torch.from_numpy(theirs) - ours).abs().nan_to_num(nan=math.inf).max()))
    return found


def made_up(shape: Sequence[int], usual: tuple[Tensor, Tensor] | None = None) -> Tensor:
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


def _rows_like(model: Model) -> tuple[Tensor, Tensor] | None:
    """Return mean and spread of the rows of the first wave, as the model has noted them."""
    way = model.known
    source = way.trunk if isinstance(way, FixedWay) else way
    if len(model.shape or ()) != 1 or isinstance(source, ImageTrunk):
        return None
    return source.mean.cpu(), source.spread.cpu()


def _facts(model: Model) -> dict[str, str]:
    facts = {
        "classes": model.classes,
        "shape": list(model.shape or ()),
        "columns": model.columns,
        "method": model.method,
        "ucb_version": ucb.__version__,
        "about": "calibrated class probabilities, averaged over weight samples; it does not tell when it is unsure",
    }
    return {
        name: fact if isinstance(fact, str) else json.dumps(fact, ensure_ascii=False)
        for name, fact in facts.items()
        if fact is not None
    }


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if path.suffix.lower() != ENDING:
        raise ValueError(f"{path} must end in {ENDING}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
