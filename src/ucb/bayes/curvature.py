"""The diagonal of the Gauss-Newton matrix at the posterior mean: how sharply inputs pin down each weight.

With J the Jacobian of a net's outputs by its weights and H the Hessian of the NLL by the outputs it is diag(J^T H J);
for classes that is the diagonal of the Fisher information (Martens 2020). Labels play no part. A likelihood gives the
roots of H: values r_k of an output whose gradients, squared, add up to the diagonal. Under independent random signs s,

    E (d/dw sum s_ik r_ik)^2 = sum (dr_ik/dw)^2    over all rows i and values k,

so that one ordinary backward pass serves any layer (curvature propagation, Martens et al. 2012). It is never negative,
and steadier than labels drawn from the prediction: a net that is sure seldom draws another one, which then counts all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ucb.bayes.kernels import fused
from ucb.bayes.passes import Pass
from ucb.bayes.sampling import mean_forward

Roots = Callable[[Tensor], Tensor]
"""Takes outputs [rows, ...] to values [rows, ...] whose gradients, squared and summed, are diag(J^T H J)."""


def class_roots(output: Tensor) -> Tensor:
    """Return sqrt(p_c) log p_c of every class, with sqrt(p_c) held: the roots of the cross-entropy."""
    log_p = output.log_softmax(-1)
    return (0.5 * log_p.detach()).exp() * log_p


def signed_sum(net: nn.Module, x: Tensor, roots: Roots, p: Pass) -> Tensor:
    """Return the sum of the roots at the mean weights under random signs; ``p`` has the noise."""
    values = roots(mean_forward(net, x))
    return (values * _signs(values.detach(), p)).sum()


def signed_gradients(
    net: nn.Module, weights: Sequence[Tensor], x: Tensor, roots: Roots, generator: torch.Generator | None = None
) -> tuple[Tensor | None, ...]:
    """Return gradients whose squares are, in the mean, the sum over the rows of ``x`` of diag(J^T H J).

    There is none for weights that these rows do not meet. The net is at rest: no dropout, no batch statistics.
    """
    if len(x) == 0:
        raise ValueError("no curvature can be seen in an empty batch")
    with torch.enable_grad(), at_rest(net):
        total = signed_sum(net, x, roots, Pass("mean", generator=generator))
    return torch.autograd.grad(total, weights, allow_unused=True)


def _signs(like: Tensor, p: Pass) -> Tensor:
    if like.dim() == 2 and fused.serves(like):  # from a seed, which each of several runs has
        noise = fused.local_noise(torch.zeros_like(like), torch.ones_like(like), *p.new_noise(like.device), 1)
        return noise.sign()
    return p.signs(tuple(like.shape), like)


@contextmanager
def at_rest(net: nn.Module) -> Iterator[None]:
    """Put a net into eval mode for the block."""
    training = [module for module in net.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
