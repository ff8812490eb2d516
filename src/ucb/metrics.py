"""What an accuracy matrix says of learning and forgetting, and whether probabilities can be believed."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from ucb import checks
from ucb.checks import count

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


class Calibration(NamedTuple):
    """What ``nlls``, ``ece`` and ``reliability`` return for the same probabilities."""

    nlls: Tensor
    ece: Tensor
    reliability: Tensor


def calibration(probabilities: Tensor, target: Tensor, bins: int = 15) -> Calibration:
    """Return all three. The rows are checked once and last: until then a GPU need not be waited for."""
    _check_shapes(probabilities, target)
    count("bins", bins)
    possible = target.clamp(0, probabilities.shape[1] - 1)  # other labels are refused below
    true = probabilities.gather(1, possible.unsqueeze(1)).squeeze(1)
    confidence, label = probabilities.max(1)
    index = (confidence * bins).ceil().long().sub_(1).clamp_(0, bins - 1)
    rows = torch.stack([torch.ones_like(confidence), confidence, label == target], 1).double()
    held = torch.zeros(bins, 3, dtype=rows.dtype, device=rows.device).index_add_(0, index, rows)
    _, confidences, right = held.unbind(1)
    error = ((right - confidences).abs().sum() / len(probabilities)).to(probabilities.dtype)
    _check_rows(probabilities, target)
    return Calibration(-true.clamp_min(torch.finfo(true.dtype).tiny).log(), error, held)


def nll(probabilities: Tensor, target: Tensor) -> Tensor:
    """Return the mean negative log-probability of the true class, in nats."""
    return nlls(probabilities, target).mean()


def nlls(probabilities: Tensor, target: Tensor) -> Tensor:
    """Return the negative log-probability of every row's true class, in nats."""
    return calibration(probabilities, target).nlls


def brier(probabilities: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared distance between probabilities and the truth as a unit vector (0 to 2)."""
    _check_shapes(probabilities, target)
    _check_rows(probabilities, target)
    truth = torch.nn.functional.one_hot(target, probabilities.shape[1])
    return (probabilities - truth).square().sum(1).mean()


def ece(probabilities: Tensor, target: Tensor, bins: int = 15) -> Tensor:
    """Return the expected calibration error (Guo et al. 2017): |accuracy - confidence| over bins of confidence.

    The bins are equally wide, open to the left and closed to the right, and weighted by how many rows they hold.
    """
    return calibration(probabilities, target, bins).ece


def reliability(probabilities: Tensor, target: Tensor, bins: int = 15) -> Tensor:
    """Return for each of ``ece``'s bins the number of its rows, the sum of their confidences and how many are right.

    They are [bins, 3] in double precision: the difference of the last two is small beside them.
    """
    return calibration(probabilities, target, bins).reliability


def _check_shapes(probabilities: Tensor, target: Tensor) -> None:
    if probabilities.dim() != 2 or target.shape != probabilities.shape[:1] or probabilities.numel() == 0:
        raise ValueError(
            f"probabilities of shape {tuple(probabilities.shape)} do not fit targets of {tuple(target.shape)}: "
            "[rows, classes] and [rows] with at least one row and one class are needed"
        )
    if target.dtype != torch.int64:
        raise TypeError(f"labels must be whole numbers (torch.int64), not {target.dtype}")


def _check_rows(probabilities: Tensor, target: Tensor) -> None:
    numbers = [probabilities.amin(), *probabilities.sum(1).aminmax(), *target.aminmax()]
    low, *ends, least, most = torch.stack([n.double() for n in numbers]).tolist()  # one look: each holds up a GPU
    if not (low >= 0 and all(abs(end - 1) < 1e-2 for end in ends)):
        raise ValueError("every row of probabilities must be at least 0 and add up to 1: are these logits?")
    last = probabilities.shape[1] - 1
    if not 0 <= least <= most <= last:
        outside = least if least < 0 else most
        raise ValueError(f"labels must be between 0 and {last}, one for each class, not {outside:g}")


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return the chance that something from outside has the greater value; equal ones count as half a chance."""
    if not (len(inside) and len(outside)):
        raise ValueError("there must be values of both kinds")
    for name, values in (("inside", inside), ("outside", outside)):
        if bool(values.isnan().any()):
            raise ValueError(f"values from {name} hold NaN, which cannot be ranked")
    ordered = inside.double().sort().values
    below, up_to = (torch.searchsorted(ordered, outside.double(), right=right) for right in (False, True))
    return float((below + up_to).double().mean()) / (2 * len(inside))
