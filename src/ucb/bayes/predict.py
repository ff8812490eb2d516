"""Predictions and their uncertainty."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ucb.bayes.passes import Batch, split_rows
from ucb.bayes.sampling import forward, mean_forward
from ucb.checks import count


class Prediction(NamedTuple):
    """The prediction of a Bayesian classifier for each row.

    ``entropy`` is all its uncertainty (in nats); ``mutual_information`` is the part that comes from not knowing the
    weights, which more data would lower: high on inputs unlike any seen before.
    """

    probabilities: Tensor
    entropy: Tensor
    mutual_information: Tensor

    @property
    def label(self) -> Tensor:
        """The most probable class of each row."""
        return self.probabilities.argmax(-1)


@torch.no_grad()
def predict(
    net: nn.Module,
    x: Batch,
    samples: int = 10,
    *,
    batch_size: int = 1024,
    stack: bool | None = None,
    generator: torch.Generator | None = None,
) -> Prediction:
    """Average the class probabilities over ``samples`` weight samples, or use the mean weights with ``samples=0``.

    During the call the net is in eval mode.

    - ``net``: a Bayesian classifier that gives logits ``[batch, classes]``.
    - ``x``: inputs ``[rows, ...]``, a tuple of several or a mapping of keyword inputs; ``batch_size`` rows go through
      the net at a time.
    - Returned are ``probabilities`` ``[rows, classes]``, and ``label``, ``entropy`` and ``mutual_information``
      ``[rows]``, the last two in nats.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 3))
    >>> answer = ucb.predict(net, torch.randn(8, 20), samples=10)
    >>> answer.probabilities.shape, answer.label.shape
    (torch.Size([8, 3]), torch.Size([8]))
    >>> bool((answer.mutual_information <= answer.entropy).all())
    True
    """
    count("samples", samples, least=0)
    training = [module for module in net.modules() if module.training]
    net.eval()
    try:
        parts = []
        for batch in split_rows(x, count("batch_size", batch_size)):
            if samples:
                logits = forward(net, batch, samples, stack=stack, generator=generator)
            else:
                logits = mean_forward(net, batch).unsqueeze(0)
            parts.append(from_logits(logits))
    finally:
        for module in training:
            module.training = True
    return Prediction(*(torch.cat(column) for column in zip(*parts, strict=True)))


def from_logits(logits: Tensor) -> Prediction:
    """Summarise logits [samples, rows, classes]: H(E p) is the entropy, H(E p) - E H(p) the mutual information."""
    p = logits.double().softmax(-1)  # two entropies that nearly agree differ by less than single precision holds
    mean = p.mean(0)
    # Mathematically at least 0 (Jensen); rounding may leave a tiny negative number.
    mutual_information = (_entropy(mean) - _entropy(p).mean(0)).clamp_min(0)
    return Prediction(*(part.to(logits.dtype) for part in (mean, _entropy(mean), mutual_information)))


def _entropy(p: Tensor) -> Tensor:
    each: Tensor = torch.special.xlogy(p, p)  # 0 log 0 is 0, as for a class that is masked out
    return (0 - each.sum(-1)).clamp_min(0)  # rounding may go below it, and 0 is not to read as -0
