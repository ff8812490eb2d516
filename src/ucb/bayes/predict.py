"""Predictions and their uncertainty."""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import nn

from ucb.bayes.elbo import as_likelihood
from ucb.bayes.likelihoods import NLL, Likelihood, P
from ucb.bayes.likelihoods import Prediction as Prediction
from ucb.bayes.likelihoods import from_logits as from_logits
from ucb.bayes.passes import Batch, split_rows
from ucb.bayes.sampling import forward, mean_forward
from ucb.checks import count


@overload
def predict(
    net: nn.Module,
    x: Batch,
    samples: int = ...,
    *,
    likelihood: None = ...,
    batch_size: int = ...,
    stack: bool | None = ...,
    generator: torch.Generator | None = ...,
) -> Prediction: ...
@overload
def predict(
    net: nn.Module,
    x: Batch,
    samples: int = ...,
    *,
    likelihood: Likelihood[P],
    batch_size: int = ...,
    stack: bool | None = ...,
    generator: torch.Generator | None = ...,
) -> P: ...
@overload
def predict(
    net: nn.Module,
    x: Batch,
    samples: int = ...,
    *,
    likelihood: NLL,
    batch_size: int = ...,
    stack: bool | None = ...,
    generator: torch.Generator | None = ...,
) -> Any: ...
@torch.no_grad()
def predict(
    net: nn.Module,
    x: Batch,
    samples: int = 10,
    *,
    likelihood: NLL | None = None,
    batch_size: int = 1024,
    stack: bool | None = None,
    generator: torch.Generator | None = None,
) -> Any:
    """Average what is predicted over ``samples`` weight samples, or use the mean weights with ``samples=0``.

    During the call the net is in eval mode.

    - ``net``: a Bayesian net; by default a classifier that gives logits ``[batch, classes]``.
    - ``x``: inputs ``[rows, ...]``, a tuple of several or a mapping of keyword inputs; ``batch_size`` rows go through
      the net at a time.
    - ``likelihood``: the one that the net was trained with, such as ``objective.likelihood``.
    - Returned for classes are ``probabilities`` ``[rows, classes]``, and ``label``, ``entropy`` and
      ``mutual_information`` ``[rows]``, the last two in nats.
    - Returned for the other likelihoods of :mod:`ucb.bayes.likelihoods` are the ``mean`` of what is predicted, its
      variance in two parts, ``aleatoric`` (noise) and ``epistemic`` (weights that are not known; 0 with
      ``samples=0``), and its ``std``, all ``[rows, ...]``.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 3))
    >>> answer = ucb.predict(net, torch.randn(8, 20), samples=10)
    >>> answer.probabilities.shape, answer.label.shape
    (torch.Size([8, 3]), torch.Size([8]))
    >>> bool((answer.mutual_information <= answer.entropy).all())
    True
    """
    count("samples", samples, least=0)
    summarise = from_logits if likelihood is None else as_likelihood(likelihood).summarise
    training = [module for module in net.modules() if module.training]
    net.eval()
    try:
        parts = []
        for batch in split_rows(x, count("batch_size", batch_size)):
            if samples:
                outputs = forward(net, batch, samples, stack=stack, generator=generator)
            else:
                outputs = mean_forward(net, batch).unsqueeze(0)
            parts.append(summarise(outputs))
    finally:
        for module in training:
            module.training = True
    return type(parts[0])(*(torch.cat(column) for column in zip(*parts, strict=True)))
