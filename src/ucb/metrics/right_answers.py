"""Which test examples a learner got right, one bit each: two methods can then be compared example by example."""

from __future__ import annotations

import base64
from typing import Any

import numpy
import torch
from torch import Tensor

from ucb.bayes import checks


def pack_right_answers(right: Tensor) -> dict[str, Any]:
    """Return a row of truth values as plain values for a JSON file: how many there are, and their bits in base64."""
    if right.dim() != 1 or right.dtype != torch.bool:
        raise TypeError(f"right answers must be one row of truth values, not {right.dtype} {tuple(right.shape)}")
    bits = numpy.packbits(right.cpu().numpy())
    return {"count": len(right), "bits": base64.b64encode(bits.tobytes()).decode()}


def unpack_right_answers(packed: dict[str, Any]) -> Tensor:
    """Undo ``pack_right_answers``: example i is in place i, as the test data has it."""
    count = checks.count("count", packed["count"], least=0)
    try:
        bits = base64.b64decode(packed["bits"], validate=True)
    except (ValueError, TypeError):
        raise ValueError("the bits of right answers are no base64") from None
    if len(bits) != -(-count // 8):
        raise ValueError(f"{count} right answers need {-(-count // 8)} bytes, and there are {len(bits)}")
    values = numpy.unpackbits(numpy.frombuffer(bits, numpy.uint8), count=count)
    return torch.from_numpy(values.astype(bool))
