"""How well outputs explain targets: functions from (output, target) to the mean negative log-likelihood of the rows.

Any function of that form can be passed to the ELBO; these two ship.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ucb.bayes.checks import positive
from ucb.bayes.kernels import classes
from ucb.bayes.priors import HALF_LOG_TWO_PI

Likelihood = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Classes: ``output`` holds logits [rows, classes], ``target`` class indices."""
    return classes.cross_entropy(output, target)


@dataclass(frozen=True)
class GaussianLikelihood:
    """Numbers: ``target`` is ``output`` plus noise of spread ``scale``, independent in every output."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("the noise scale", self.scale)

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return -log N(target | output, scale^2), summed over outputs, averaged over rows."""
        if output.shape != target.shape:
            raise ValueError(f"outputs of shape {tuple(output.shape)} do not fit targets of {tuple(target.shape)}")
        error = ((output - target) / self.scale).square().sum() / (2 * len(output))
        outputs = output[0].numel()
        return error + outputs * (math.log(self.scale) + HALF_LOG_TWO_PI)

    def roots(self, output: Tensor) -> Tensor:
        """Return what the curvature is made of: the Hessian by the outputs is 1 / scale^2."""
        return output / self.scale
