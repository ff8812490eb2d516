"""Class probabilities under the mean of every weight: one forward pass, nothing sampled, no mutual information."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ucb.bayes import mean_forward
from ucb.waves.fixed import FixedWay
from ucb.waves.ongoing import OngoingWay

if TYPE_CHECKING:
    from ucb.waves.model import Model


@torch.no_grad()
def mean_probabilities(model: Model, x: Tensor) -> Tensor:
    """Return calibrated probabilities [rows, classes] of examples under the mean weights."""
    way = model.known
    logits = _of_fixed(way, x) if isinstance(way, FixedWay) else _of_ongoing(way, x)
    return (logits * model.calibration.scale).softmax(-1)


def _of_fixed(way: FixedWay, x: Tensor) -> Tensor:
    scores: Tensor = way.head(way.features(x).double()) * way.solved.balance
    return scores.float()


def _of_ongoing(way: OngoingWay, x: Tensor) -> Tensor:
    """Ask every head with its mean weights, as if they were the only sample."""
    net = way.method.net.eval()
    with net.using(None):
        return way.heard(mean_forward(net, way.prepared(x))[None]).logits[0]
