"""The gradient of several runs at once: every tensor has a leading axis of runs, and a small net fills a GPU better.

The net's own ``forward`` is written for one run. ``torch.vmap`` lets it work on all of them: products of matrices
become batched ones, and each kernel of this package says itself what it does then. Only forward is mapped: the losses
of the runs do not depend on each other's weights, so that one backward of their sum gives each run its own gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from ucb.bayes.curvature import Roots, at_rest, signed_sum
from ucb.bayes.elbo import ELBO
from ucb.bayes.kernels.clipping import Measured
from ucb.bayes.kernels.noise import of_runs
from ucb.bayes.lean import Penalty
from ucb.bayes.passes import Pass
from ucb.bayes.together import can_fuse, fused_kl_gradients
from ucb.bayes.travel import travel_like, way_to_travel

Loss = Callable[..., Tensor]


def losses_of_runs(net: nn.Module, loss: Loss, *inputs: Tensor) -> Tensor:
    """Return ``loss(*inputs)``, which uses ``net``, of every run: the first axis of parameters and inputs is theirs."""
    whole = _Loss(net, loss)
    parameters: dict[str, Tensor] = dict(whole.named_parameters())

    def of_one(own: dict[str, Tensor], *its: Tensor) -> Tensor:
        return cast(Tensor, functional_call(whole, own, its))

    with _BatchedLinear():
        return torch.vmap(of_one)(parameters, *inputs)


def add_elbo_gradients_of_runs(
    objective: ELBO, net: nn.Module, x: Tensor, y: Tensor, seeds: Tensor, measured: Measured | None = None
) -> Tensor:
    """Add the gradient of every run's ELBO, with noise on activations; return the mean NLL of each.

    ``seeds`` [draws, runs] are those that each run would have drawn alone: of the noise and, if there is a KL, of its
    prior samples. ``measured`` is as in ``ELBO.add_gradients``.
    """
    penalty = Penalty(objective.prior, objective.kl_weight, objective.prior_samples, is_asked=False)
    if objective.estimator != "local" or not can_fuse(net, penalty):
        raise RuntimeError("runs learn at once with the estimator 'local' and a scale mixture, in kernels on a GPU")
    walked = Pass("local", x.shape[1], objective.samples, seed=seeds[0], later={})

    def nll(x: Tensor, y: Tensor, seed: Tensor) -> Tensor:
        return objective.nll_on(net, x, y, Pass("local", len(x), objective.samples, seed=seed, later=walked.later))

    nlls = losses_of_runs(net, nll, x, y, seeds[0])
    nlls.backward(torch.ones_like(nlls))
    fused_kl_gradients(net, penalty, lambda _: seeds[1], [walked], measured)
    return nlls.detach()


def signed_gradients_of_runs(
    net: nn.Module, weights: Sequence[Tensor], x: Tensor, roots: Roots, seeds: Tensor
) -> tuple[Tensor | None, ...]:
    """Do the same as ``signed_gradients`` for every run; ``seeds`` [runs] are those that each would have drawn."""

    def total(x: Tensor, seed: Tensor) -> Tensor:
        return signed_sum(net, x, roots, Pass("mean", seed=seed))

    with torch.enable_grad(), at_rest(net):
        totals = losses_of_runs(net, total, x, seeds)
    return torch.autograd.grad(totals.sum(), weights, allow_unused=True)


def travel_of_runs(net: nn.Module, alone: nn.Module, example: Tensor, samples: int) -> None:
    """Let samples travel through the net of several runs as they do through that of one, which is tried in training."""
    judging = [module for module in alone.modules() if not module.training]
    alone.train()
    way_to_travel(alone, example, Pass("local", len(example), samples))
    travel_like(net, alone)
    for module in judging:
        module.training = False


class _Loss(nn.Module):
    """A loss as a module, so that its net's parameters can be exchanged for a run's."""

    def __init__(self, net: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.loss(*inputs)


class _BatchedLinear(TorchFunctionMode):
    """Does linear layers with ``_Linear``: PyTorch's own way under ``vmap`` takes three times as many kernels."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.linear:
            return func(*args, **(kwargs or {}))
        return _linear(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    apply: Any = _Linear.apply
    return cast(Tensor, apply(input, weight, bias))


class _Linear(torch.autograd.Function):
    """x W^T + b of several runs. The weights' gradient lies in memory as the weights do, and need not be copied."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply."""
        if x.dim() != 3 or weight.dim() != 3:
            raise RuntimeError("several runs at once need inputs of [rows, features] and weights of their own")
        product = torch.bmm if bias is None else partial(torch.baddbmm, bias.unsqueeze(-2))
        return product(x, weight.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the factors."""
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients that are asked for."""
        x, weight = ctx.saved_tensors
        by_x, by_weight, by_bias = ctx.needs_input_grad
        return (
            grad @ weight if by_x else None,
            grad.mT @ x if by_weight else None,
            grad.sum(-2) if ctx.has_bias and by_bias else None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        """Multiply the matrices of all runs at once."""
        return cast(Any, _Linear).apply(*of_runs(info.batch_size, inputs, in_dims)), 0
