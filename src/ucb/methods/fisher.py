"""The diagonal of the Fisher information: how sharply a task's answers pin down each weight."""

from __future__ import annotations

import torch
from torch import Tensor

from ucb.bayes.curvature import class_roots
from ucb.methods.base import TaskData
from ucb.methods.ordinary import OrdinaryMethod
from ucb.methods.per_example import Weights, mean_powers, own_logits, some_inputs


def fisher(method: OrdinaryMethod, data: TaskData, most: int) -> Weights:
    """Return it for the shared parameters, from at most ``most`` training examples (0: all), always above 0.

    It is E_x E_{c ~ p(.|x)} (d log p(c|x) / d theta)^2. The inner expectation is the sum over all classes, under the
    net's own probabilities: the labels play no part.
    """

    def roots(logits: Tensor) -> Tensor:
        return class_roots(own_logits(method, logits))

    inputs = some_inputs(data, most, method.generator)
    mean = mean_powers(method.net, method.shared(), inputs, roots, power=2)
    # a weight that no task needs must be able to take part in a weighted mean, away from slow subnormal numbers
    return {name: value.clamp_min(max(1e-20, torch.finfo(value.dtype).tiny)) for name, value in mean.items()}
