"""An ONNX graph under construction: nodes are added one by one, and each is known by the name of what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

OPSET, IR_VERSION = 17, 8
"""Old enough for every runtime of the last years."""
LARGEST = 2_000_000_000
"""An ONNX file without files beside it is shorter than 2 GiB."""


def library(name: str) -> Any:
    """Return onnx or onnxruntime; if it is missing, say in one sentence how to get it."""
    try:
        return import_module(name)
    except ImportError:
        raise RuntimeError(f"exporting needs {name}: install it with `pip install 'ucb[onnx]'`") from None


class Graph:
    """Collects nodes and constants; ``model`` closes it."""

    def __init__(self) -> None:
        self._onnx = library("onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._bytes = 0

    def constant(self, value: Tensor | npt.NDArray[Any] | float) -> str:
        """Add numbers; floating ones are kept in single precision."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        self._bytes += array.nbytes
        if self._bytes > LARGEST:
            raise ValueError("the model is too large for an ONNX file, which ends at 2 GB")
        name = f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation, and return the name of its result."""
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def with_number(self, kind: str, x: str, number: float) -> str:
        """Add an operation of a result and a number, such as Add or Div."""
        return self.node(kind, x, self.constant(float(number)))

    def reshaped(self, x: str, *sides: int) -> str:
        """Give a result other sides; 0 leaves one as it is, and -1 takes what is left."""
        return self.node("Reshape", x, self.constant(torch.tensor(sides)))

    def model(
        self, source: tuple[str, torch.dtype, tuple[int, ...]], result: tuple[str, str, int], facts: Mapping[str, str]
    ) -> bytes:
        """Return the file: any number of rows of ``source`` become rows of ``result``, called as it says."""
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        name, dtype, shape = source
        made, called, width = result
        self._nodes.append(helper.make_node("Identity", [made], [called], called))
        kind = kinds.UINT8 if dtype == torch.uint8 else kinds.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "ucb",
            [helper.make_tensor_value_info(name, kind, ["rows", *shape])],
            [helper.make_tensor_value_info(called, kinds.FLOAT, ["rows", width])],
            self._constants,
        )
        model = helper.make_model(
            graph, producer_name="ucb", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        helper.set_model_props(model, dict(facts))
        data: bytes = model.SerializeToString()
        self._onnx.checker.check_model(data, full_check=True)
        return data
