"""Whether probabilities mean what they say. All take probabilities [rows, classes] and the true classes [rows]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ucb.checks import count


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
