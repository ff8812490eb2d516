"""What a sequence of tasks is judged by, from the accuracy matrix (section 5.1 of the paper), in percent."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor

from ucb import checks

Row = list[float]


@dataclass
class AccuracyMatrix:
    """``after[t][i]`` is the accuracy on task i after task t was learnt, for i <= t: R_{i,t} of Eq. 8.

    ``before[i]`` is the accuracy on task i just before it is learnt, and ``at_start[i]`` that of the net before it had
    learnt anything: forward transfer needs both.
    """

    after: list[Row] = field(default_factory=list)
    before: Row = field(default_factory=list)
    at_start: Row = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add the accuracies on all tasks seen, after one more task."""
        if len(row) != len(self.after) + 1:
            raise ValueError(f"after task {len(self.after) + 1} there are as many accuracies, not {len(row)}")
        self.after.append(list(row))

    @property
    def acc(self) -> float:
        """ACC: the mean accuracy over all tasks at the end (Eq. 8)."""
        return _mean(self.after[-1])

    @property
    def bwt(self) -> float:
        """BWT as the paper has it: the mean over all n tasks of R_{i,n} - R_{i,i}, the last one's 0 counted (Eq. 8)."""
        return _mean(self._changes())

    @property
    def bwt_n1(self) -> float:
        """BWT over the n - 1 tasks that could be forgotten (Lopez-Paz and Ranzato 2017); 0 for a single task."""
        return _mean(self._changes()[:-1] or [0.0])

    @property
    def forgetting(self) -> float:
        """The mean drop from the best accuracy a task ever had to its last (Chaudhry et al. 2018), over n - 1 tasks."""
        last, n = self.after[-1], len(self.after)
        drops = [max(self.after[t][i] for t in range(i, n - 1)) - last[i] for i in range(n - 1)]
        return _mean(drops or [0.0])

    @property
    def forward_transfer(self) -> float:
        """How much better than the untrained net a task does just before it is learnt, over tasks 2 .. n."""
        gains = [b - s for b, s in zip(self.before[1:], self.at_start[1:], strict=True)]
        return _mean(gains or [0.0])

    @property
    def learning(self) -> float:
        """The mean accuracy on each task right after it was learnt: R_{i,i}."""
        return _mean([row[-1] for row in self.after])

    def _changes(self) -> Row:
        return [last - self.after[i][i] for i, last in enumerate(self.after[-1])]


def _mean(values: Row) -> float:
    return math.fsum(values) / len(values)


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
