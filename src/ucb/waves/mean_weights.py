"""Class probabilities under the mean of every weight: one forward pass, nothing sampled, no mutual information."""

from __future__ import annotations

import math
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
    scores: Tensor = way.head(way.features(x).double())
    return scores.float()


def _of_ongoing(way: OngoingWay, x: Tensor) -> Tensor:
    """Return the logits by the rule of :mod:`ucb.waves.ongoing`, every head asked with its mean weights."""
    net = way.method.net.eval()
    with net.using(None):
        answers = mean_forward(net, way.prepared(x))
    classes = 1 + max(number for head in way.heads for number in head)
    logits = torch.full((len(x), classes), -math.inf)
    for own, said in zip(way.heads, answers.split([len(head) for head in way.heads], -1), strict=True):
        log_p = said.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1, keepdim=True)
        logits[:, own] = torch.maximum(logits[:, own], log_p - entropy)
    return logits
