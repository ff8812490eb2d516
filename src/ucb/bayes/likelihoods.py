"""Likelihoods: what a net's outputs say of a target, be it a class, numbers, yes or no, or counts.

A likelihood is a callable object (output, target) -> mean NLL of the rows: the NLL is summed over a row's outputs and
averaged over rows. It also knows how it is curved, how many outputs a net needs, what several weight samples predict
together, and how good a prediction was. Outputs are ``[rows, ...]``; targets have the same shape, or are ``[rows]``
where a net gives ``[rows, 1]``.

Targets that cannot be are refused. Their values are looked at on a CPU alone: on a GPU the program would have to wait
for them at every step, and no step could be captured. There a NaN in the targets becomes a NaN in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes.curvature import class_roots
from ucb.bayes.priors import HALF_LOG_TWO_PI
from ucb.checks import count, positive
from ucb.kernels.triton import steps

P = TypeVar("P")
NLL = Callable[[Tensor, Tensor], Tensor]
"""Takes outputs and targets to the mean NLL of the rows: all that the ELBO needs of a likelihood."""


@runtime_checkable
class Likelihood(Protocol[P]):
    """How targets are distributed around a net's outputs; ``P`` is the kind of its predictions."""

    def __call__(self, output: Tensor, target: Tensor, /) -> Tensor:
        """Return the NLL, summed over the outputs of a row and averaged over rows."""

    def roots(self, output: Tensor, /) -> Tensor:
        """Return values whose gradients, squared, add up to the Hessian's diagonal (:mod:`ucb.bayes.curvature`)."""

    def outputs_for(self, target: Tensor, /) -> int:
        """Return how many numbers a net must give for each row of such targets."""

    def summarise(self, outputs: Tensor, /) -> P:
        """Return what outputs ``[samples, rows, ...]`` predict together: a NamedTuple of tensors ``[rows, ...]``."""

    def score(self, prediction: P, target: Tensor, /) -> float:
        """Return how good a prediction was, 1 at best, so that a table of tasks can hold any likelihood's."""


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


class PredictiveMoments(NamedTuple):
    """The mean of every number that is predicted, and the two parts of its variance (the law of total variance).

    ``aleatoric`` is E_w Var(y | w), the noise that would remain if the weights w were known; ``epistemic`` is
    Var_w E(y | w), which comes from not knowing them and which more data would lower.
    """

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor

    @property
    def std(self) -> Tensor:
        """The standard deviation of what is predicted, noise and weights together."""
        return (self.aleatoric + self.epistemic).sqrt()


@dataclass(frozen=True)
class Categorical:
    """Classes: outputs are logits ``[rows, classes]``, targets class indices ``[rows]``.

    NLL = -log softmax(output)_target. It is :func:`ucb.bayes.cross_entropy` as an object.
    """

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy, averaged over rows."""
        if output.dim() != 2 or target.shape != output.shape[:1]:
            raise _misfit(output, target)
        classes = output.shape[1]
        _check_values(_labels(target), f"class indices from 0 to {classes - 1}", lambda t: (t >= 0) & (t < classes))
        return steps.cross_entropy(output, target)

    def roots(self, output: Tensor) -> Tensor:
        """Return the roots of diag(p) - p p^T."""
        return class_roots(output)

    def outputs_for(self, target: Tensor) -> int:
        """Return one more than the largest label: show it the labels of a whole task, since a batch may lack some."""
        _check_values(_labels(target), "class indices of 0 or above", lambda t: t >= 0)
        return int(_some(target).max()) + 1

    def summarise(self, outputs: Tensor) -> Prediction:
        """Return the mean probabilities, and how sure they are."""
        return from_logits(outputs)

    def score(self, prediction: Prediction, target: Tensor) -> float:
        """Return the share of right labels."""
        return _share(prediction.label, target)


class _Numbers:
    """What likelihoods of numbers share: the law of total variance, and R^2."""

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the targets under one set of weights, both in the targets' shape."""
        raise NotImplementedError(f"{type(self).__name__} must define moments()")

    def outputs_for(self, target: Tensor) -> int:
        """Return how many numbers each row of the target holds."""
        return target.shape[1:].numel()

    def summarise(self, outputs: Tensor) -> PredictiveMoments:
        """Return mean and variances over outputs ``[samples, rows, ...]``, each sample as likely as the others."""
        means, variances = (part.unflatten(0, outputs.shape[:2]) for part in self.moments(outputs.flatten(0, 1)))
        return PredictiveMoments(means.mean(0), variances.mean(0), means.var(0, correction=0))

    def score(self, prediction: PredictiveMoments, target: Tensor) -> float:
        """Return R^2 = 1 - SSE / SST of the mean, each sum over all outputs: 0 for a net that knows the means alone.

        Where no target varies R^2 is not defined: it counts as 1 if all are met exactly, and as 0 otherwise.
        """
        target = _fit(prediction.mean, _some(target)).double()
        error = (target - prediction.mean).square().sum()
        offset = target - target[:1]  # exactly 0 where targets do not vary, whatever their mean is rounded to
        total = (offset - offset.mean(0)).square().sum()
        return float(1 - error / total) if total > 0 else float(error == 0)


@dataclass(frozen=True)
class GaussianLikelihood(_Numbers):
    """Numbers: ``target`` is ``output`` plus noise of spread ``scale``, independent in every output.

    NLL = (target - output)^2 / (2 scale^2) + log scale + log(2 pi) / 2.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("the noise scale", self.scale)

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return -log N(target | output, scale^2), summed over outputs, averaged over rows."""
        target = _fit_numbers(output, target)
        error = ((output - target) / self.scale).square().sum() / (2 * len(output))
        outputs = output[0].numel()
        return error + outputs * (math.log(self.scale) + HALF_LOG_TWO_PI)

    def roots(self, output: Tensor) -> Tensor:
        """Return what the curvature is made of: the Hessian by the outputs is 1 / scale^2."""
        return output / self.scale

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the noise's variance."""
        return output, torch.full_like(output, self.scale**2)


class LearntGaussian(_Numbers, nn.Module):
    """Numbers with noise whose spread is learnt: one for all outputs, or one for each of ``outputs``, the last axis.

    NLL as for :class:`GaussianLikelihood`; ``scale`` is where the spread starts. The spread is an ordinary parameter,
    ``log_scale``, and not part of the net: put it into the optimiser, and save it with its own ``state_dict``.

    >>> import torch, ucb
    >>> from ucb.bayes import LearntGaussian
    >>> net, noise = ucb.to_bayesian(torch.nn.Linear(3, 2)), LearntGaussian(outputs=2)
    >>> optimizer = ucb.UCB([*ucb.param_groups(net), *ucb.param_groups(noise, "noise.")], lr=0.1)
    >>> objective = ucb.ELBO(num_examples=64, likelihood=noise)
    >>> terms = objective.backward(net, torch.randn(64, 3), torch.randn(64, 2))
    >>> optimizer.step()
    >>> noise.scale.shape
    torch.Size([2])
    """

    def __init__(self, outputs: int | None = None, scale: float = 1.0) -> None:
        super().__init__()
        shape = () if outputs is None else (count("outputs", outputs),)
        self.log_scale = nn.Parameter(torch.full(shape, math.log(positive("the noise scale", scale))))

    @property
    def scale(self) -> Tensor:
        """The noise's spread at present."""
        return self.log_scale.detach().exp()

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return -log N(target | output, scale^2), summed over outputs, averaged over rows."""
        return _gaussian_nll(output, _fit_numbers(output, target), _spread(self.log_scale, output))

    def roots(self, output: Tensor) -> Tensor:
        """Return what the curvature is made of: the Hessian by the outputs is 1 / scale^2."""
        return output / _spread(self.scale, output)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the noise's variance."""
        return output, _spread(self.scale, output).square()


@dataclass(frozen=True)
class HeteroscedasticGaussian(_Numbers):
    """Numbers with noise that depends on the input: a net gives the mean and the log-variance of every number.

    For targets ``[rows, k, ...]`` outputs are ``[rows, 2k, ...]``, first all means, then all log-variances.
    NLL = (target - mean)^2 / (2 exp(log-variance)) + log-variance / 2 + log(2 pi) / 2.
    """

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return -log N(target | mean, variance), summed over numbers, averaged over rows."""
        mean, log_variance = _halve(output)
        return _gaussian_nll(mean, _fit_numbers(mean, target), log_variance / 2)

    def roots(self, output: Tensor) -> Tensor:
        """Return what the curvature is made of: 1 / variance by the mean and 1/2 by the log-variance.

        That is the Hessian's mean over targets, the Fisher information. The Hessian of one target depends on that
        target, which is not known here, and need not be positive.
        """
        mean, log_variance = _halve(output)
        return torch.cat([mean * (log_variance.detach() / -2).exp(), log_variance / math.sqrt(2)], 1)

    def outputs_for(self, target: Tensor) -> int:
        """Return twice as many numbers as each row of the target holds."""
        return 2 * super().outputs_for(target)

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance."""
        mean, log_variance = _halve(output)
        return mean, log_variance.exp()


@dataclass(frozen=True)
class Bernoulli(_Numbers):
    """Yes or no, once (``[rows]``) or for each of k labels (``[rows, k]``): outputs are logits, targets 1 or 0.

    NLL = -target log p - (1 - target) log(1 - p), p = sigmoid(output). A target between 0 and 1 is the probability of a
    1, and the NLL is the mean over both: labels that are smoothed, or that another net gave, can be learnt.
    """

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return -log p(target), summed over labels, averaged over rows."""
        target = _fit(output, target)
        _check_values(target, "0, 1 or a probability between them", lambda t: (t >= 0) & (t <= 1))
        return F.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="sum") / len(output)

    def roots(self, output: Tensor) -> Tensor:
        """Return what the curvature is made of: the Hessian by the logits is p (1 - p)."""
        return (output.sigmoid() * (-output).sigmoid()).sqrt().detach() * output

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return p and p (1 - p)."""
        p = output.sigmoid()
        return p, p * (-output).sigmoid()

    def score(self, prediction: PredictiveMoments, target: Tensor) -> float:
        """Return the share of right labels, all outputs together: both above a half, or neither."""
        return _share(prediction.mean > 0.5, _fit(prediction.mean, target) > 0.5)


@dataclass(frozen=True)
class Poisson(_Numbers):
    """Counts: outputs are logarithms of rates, targets the whole numbers 0, 1, 2 and so on.

    NLL = exp(output) - target * output + log(target!).
    """

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return -log p(target), summed over outputs, averaged over rows."""
        target = _fit(output, target)
        _check_values(target, "counts, whole numbers of 0 or above", lambda t: (t >= 0) & (t % 1 == 0))
        target = target.to(output.dtype)
        return (output.exp() - target * output + torch.lgamma(target + 1)).sum() / len(output)

    def roots(self, output: Tensor) -> Tensor:
        """Return what the curvature is made of: the Hessian by the log-rates is the rate."""
        return 2 * (output / 2).exp()

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rate twice: it is both mean and variance."""
        rate = output.exp()
        return rate, rate


def _gaussian_nll(mean: Tensor, target: Tensor, log_scale: Tensor) -> Tensor:
    each = ((target - mean) * (-log_scale).exp()).square() / 2 + log_scale + HALF_LOG_TWO_PI
    return each.sum() / len(mean)


def _spread(scale: Tensor, output: Tensor) -> Tensor:
    """Return noise scales, one or one for each of the last axis, in the outputs' shape."""
    if scale.dim() and output.shape[-1:] != scale.shape:
        raise ValueError(f"outputs of shape {tuple(output.shape)} do not fit noise scales for {len(scale)} outputs")
    return scale.expand_as(output)


def _halve(output: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and log-variances."""
    if output.dim() < 2 or output.shape[1] % 2:
        raise ValueError(
            f"outputs of shape {tuple(output.shape)} are no means and log-variances: the net must give two numbers for "
            "each number of the target"
        )
    mean, log_variance = output.chunk(2, 1)
    return mean, log_variance


def _fit(output: Tensor, target: Tensor) -> Tensor:
    """Return the target in the outputs' shape; where they differ, PyTorch would pair every row with every other."""
    if output.shape == (*target.shape, 1):
        return target.unsqueeze(-1)
    if output.shape != target.shape:
        raise _misfit(output, target)
    return target


def _fit_numbers(output: Tensor, target: Tensor) -> Tensor:
    target = _fit(output, target)
    _check_values(target, "finite numbers", torch.isfinite)
    return target


def _misfit(output: Tensor, target: Tensor) -> ValueError:
    return ValueError(f"outputs of shape {tuple(output.shape)} do not fit targets of {tuple(target.shape)}")


def _labels(target: Tensor) -> Tensor:
    if target.is_floating_point() or target.is_complex():
        raise TypeError(f"class indices must be whole numbers, not {target.dtype}")
    return target


def _check_values(target: Tensor, wanted: str, is_right: Callable[[Tensor], Tensor]) -> None:
    """Refuse values that cannot be, on a CPU."""
    if target.is_cpu and not bool((right := is_right(target)).all()):
        raise ValueError(f"targets must be {wanted}, not {target[~right][0].item()}")


def _some(target: Tensor) -> Tensor:
    if target.numel() == 0:
        raise ValueError("there are no targets: at least one row is needed")
    return target


def _share(found: Tensor, wanted: Tensor) -> float:
    if found.shape != wanted.shape:
        raise _misfit(found, wanted)
    return float((found == _some(wanted)).double().mean())
