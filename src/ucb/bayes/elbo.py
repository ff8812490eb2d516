"""The ELBO, and its default likelihood, that of classes; others are in :mod:`ucb.bayes.likelihoods`.

Any function from (output, target) to the mean negative log-likelihood (NLL) of the rows can be passed to the ELBO.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from ucb import checks
from ucb.bayes.curvature import Roots, class_roots
from ucb.bayes.gradients import (
    Penalty,
    can_fuse,
    sequential_gradients,
    sequential_kl_gradients,
    stacked_gradients,
    stacked_kl_gradients,
)
from ucb.bayes.likelihoods import NLL, Categorical, Likelihood
from ucb.bayes.likelihoods import GaussianLikelihood as GaussianLikelihood  # pickles may look for it here
from ucb.bayes.passes import ESTIMATORS, Batch, Estimator, Pass, count_rows, stack_drawn_weights
from ucb.bayes.priors import Prior, ScaleMixture, kl_divergence
from ucb.bayes.sampling import plan, walk
from ucb.kernels.triton import steps
from ucb.kernels.triton.steps import Measured


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Classes: ``output`` holds logits [rows, classes], ``target`` class indices."""
    return steps.cross_entropy(output, target)


def as_likelihood(likelihood: NLL) -> Likelihood[Any]:
    """Return a likelihood that can also predict and score; ``cross_entropy``, a plain function, is ``Categorical``."""
    if likelihood is cross_entropy:
        return Categorical()
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"{likelihood!r} cannot predict: a Likelihood such as Categorical() or Poisson() is needed")
    return likelihood


class Terms(NamedTuple):
    """The objective and its two parts. At temperature 0 no KL is computed, and ``kl`` is None."""

    loss: Tensor
    nll: Tensor
    kl: Tensor | None


@dataclass(frozen=True)
class ELBO:
    """The (negative) evidence lower bound per example, for a task of ``num_examples`` training examples.

    ``samples`` weight samples estimate the likelihood, ``prior_samples`` the prior term where it has no closed form;
    under the ``weights`` estimator both use the same samples as far as they reach. ``stack`` is as in
    :func:`ucb.bayes.forward`. ``roots`` says how a likelihood of your own is curved (:mod:`ucb.bayes.curvature`), which
    :class:`ucb.optim.UCBNG` needs; the likelihoods of this package know it themselves.

    - ``num_examples``: N, the number of the task's training examples.
    - ``prior``: the prior of the weights; by default the paper's :class:`ScaleMixture`.
    - ``likelihood``: a function of output ``[batch, ...]`` and target that gives the mean NLL of the rows; by default
      the cross-entropy of logits ``[batch, classes]`` and labels ``[batch]``. Others: :mod:`ucb.bayes.likelihoods`.
    - ``temperature``: the factor of the KL term; 1 aims at the true posterior, 0 leaves the likelihood alone.
    - ``estimator``: "weights", "local" or "flipout": what is sampled.

    A batch ``x`` is a tensor, a tuple of the net's inputs (``net(*x)``) or a mapping of its keyword inputs
    (``net(**x)``); if the net does not answer with a tensor, its ``logits`` count, or the first or only part.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 2))
    >>> objective = ucb.ELBO(num_examples=500, temperature=0.01, samples=4, estimator="local")
    >>> x, y = torch.randn(64, 20), torch.randint(2, (64,))
    >>> terms = objective.backward(net, x, y)  # gradients are in .grad
    >>> bool(torch.isclose(terms.loss, terms.nll + 0.01 / 500 * terms.kl))
    True
    """

    num_examples: int
    prior: Prior = field(default_factory=ScaleMixture)
    likelihood: NLL = cross_entropy
    temperature: float = 1.0
    samples: int = 1
    prior_samples: int = 1
    estimator: Estimator = "weights"
    stack: bool | None = None
    generator: torch.Generator | None = None
    roots: Roots | None = None

    def __post_init__(self) -> None:
        checks.count("num_examples, the number of training examples,", self.num_examples)
        checks.count("samples", self.samples)
        checks.count("prior_samples", self.prior_samples)
        checks.not_negative("temperature", self.temperature)
        checks.one_of("estimator", self.estimator, ESTIMATORS)
        if not isinstance(self.prior, Prior):
            raise TypeError(f"prior must be a Prior such as ScaleMixture() or Normal(), not {self.prior!r}")

    @property
    def kl_weight(self) -> float:
        """The factor of the KL term: temperature / N."""
        return self.temperature / self.num_examples

    @property
    def curvature_roots(self) -> Roots:
        """How the likelihood is curved."""
        if self.roots is not None:
            return self.roots
        if self.likelihood is cross_entropy:
            return class_roots
        roots: Roots | None = getattr(self.likelihood, "roots", None)
        if roots is None:
            raise TypeError(f"nothing is known of the curvature of {self.likelihood!r}: give the ELBO its roots")
        return roots

    def __call__(self, net: nn.Module, x: Batch, y: Tensor) -> Terms:
        """Return the objective on a batch, ready for ``loss.backward()``."""
        passes = self._plan(x)
        nll = _mean([self.nll_on(net, x, y, p) for p in passes])
        if self.temperature == 0:
            return self._terms(nll, None)
        kl = kl_divergence(
            net, self.prior, self.prior_samples, drawn=stack_drawn_weights(passes), generator=self.generator
        )
        return self._terms(nll, kl)

    def backward(self, net: nn.Module, x: Batch, y: Tensor) -> Terms:
        """Add the objective's gradient to every parameter's ``grad``, in the way that costs least.

        It is what ``loss.backward()`` gives; but where samples run one after the other, each one's graph and weights
        are gone before the next is drawn, so memory does not grow with their number. Gradients of mu and rho may be
        written without autograd, so hooks on these two do not fire; a net that is wrapped to share its gradients with
        other processes needs these, and is refused.
        """
        return self._terms(*self._backward(net, x, y, is_asked=True))

    def add_gradients(self, net: nn.Module, x: Batch, y: Tensor, measured: Measured | None = None) -> Tensor:
        """Do the same as ``backward``, but return the mean NLL alone, so that no time goes into the KL's value.

        ``measured`` gets the sums of squares of those gradients that a kernel has written.
        """
        return self._backward(net, x, y, is_asked=False, measured=measured)[0]

    def _backward(
        self, net: nn.Module, x: Batch, y: Tensor, *, is_asked: bool, measured: Measured | None = None
    ) -> tuple[Tensor, Tensor | None]:
        _refuse_wrapped(net)
        passes = self._plan(x)
        penalty = Penalty(self.prior, self.kl_weight, self.prior_samples, is_asked)
        if self.estimator != "weights":  # no weights are drawn that the prior could share
            is_fused = can_fuse(net, penalty)
            nlls = []
            for p in passes:
                p.later = {} if is_fused and len(passes) == 1 else None
                nll = self.nll_on(net, x, y, p)
                (nll / len(passes) if len(passes) > 1 else nll).backward()
                nlls.append(nll.detach())
            if is_fused:
                return _mean(nlls), stacked_kl_gradients(net, penalty, passes, measured)
            return _mean(nlls), sequential_kl_gradients(net, penalty, self.generator)
        if len(passes) == 1 and can_fuse(net, penalty):
            return stacked_gradients(net, lambda p: self.nll_on(net, x, y, p), passes[0], penalty, measured)
        if passes[0].samples == 1:
            return sequential_gradients(net, lambda p: self.nll_on(net, x, y, p), self.samples, penalty, self.generator)
        terms = self(net, x, y)
        terms.loss.backward()
        return terms.nll, terms.kl

    def _terms(self, nll: Tensor, kl: Tensor | None) -> Terms:
        return Terms(
            nll if kl is None else nll + self.kl_weight * kl, nll.detach(), None if kl is None else kl.detach()
        )

    def _plan(self, x: Batch) -> list[Pass]:
        return plan(x, self.samples, self.estimator, self.stack, self.generator)

    def nll_on(self, net: nn.Module, x: Batch, y: Tensor, p: Pass) -> Tensor:
        """Return the mean NLL of a batch that walks through the net on the pass ``p``."""
        if count_rows(x) == 0:
            raise ValueError("the batch is empty, and the mean NLL of no examples is not a number")
        # The rows in the order in which they travelled, example by example: so they lie in memory.
        output = walk(net, x, p)
        if output.dim() == 1:
            raise ValueError(
                "the net answers with one number for the whole batch; the ELBO needs a row for each example"
            )
        output = output.transpose(0, 1)
        targets = y.unsqueeze(1).expand(len(y), p.samples, *y.shape[1:])
        return self.likelihood(output.flatten(0, 1), targets.flatten(0, 1))


def _mean(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(values).mean()


def _refuse_wrapped(net: nn.Module) -> None:
    """Refuse a net that shares its gradients with other processes: only autograd's hooks would send them."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel  # it takes long, and few need it

    for module in net.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel | FullyShardedDataParallel | FSDPModule):
            raise ValueError(
                f"ELBO.backward() would not share gradients between the processes of a {type(module).__name__}: use "
                "objective(net, x, y).loss.backward()"
            )
