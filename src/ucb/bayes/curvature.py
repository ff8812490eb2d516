"""The diagonal of the Gauss-Newton matrix at the posterior mean: how sharply inputs pin down each weight.

With J the Jacobian of a net's outputs by its weights and H the Hessian of the NLL by the outputs it is diag(J^T H J);
for classes that is the diagonal of the Fisher information (Martens 2020). Labels play no part. A likelihood gives the
roots of H: values r_k of an output whose gradients, squared, add up to the diagonal. Under independent random signs s,

    E (d/dw sum s_ik r_ik)^2 = sum (dr_ik/dw)^2    over all rows i and values k,

so that one ordinary backward pass serves any layer (curvature propagation, Martens et al. 2012). It is never negative,
and steadier than labels drawn from the prediction: a confident net seldom draws another label, which then decides all.
Roots are not unique. Signs add noise where several roots of one row are large, so those of few large ones are best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ucb.bayes.passes import Batch, Pass, count_rows, eval_mode
from ucb.bayes.sampling import mean_forward
from ucb.kernels.triton import fused, launch

SMALLEST = 1e-30
"""What a probability is taken for where it underflows: there its root vanishes."""

Roots = Callable[[Tensor], Tensor]
"""Takes outputs [rows, ...] to values [rows, ...] whose gradients, squared and summed, are diag(J^T H J)."""


def class_roots(output: Tensor) -> Tensor:
    """Return the roots of the cross-entropy's Hessian diag(p) - p p^T: one less than there are classes.

    A class is told from the rest, then one of the rest from what is left, and so on: with the likeliest first and
    q_k = p_k + p_(k+1) + ..., root k is sqrt(p_k q_(k+1) / q_k) times the logit less the mean logit of those after it.
    A net mostly wavers between two classes. Nearly all then is in the first root, where random signs make no noise.
    """
    logits = output.sort(-1, descending=True).values
    p = logits.detach().softmax(-1)
    left, moment = (values.flip(-1).cumsum(-1).flip(-1) for values in (p, p * logits))
    rest = left[..., 1:]
    weight = (p[..., :-1] * rest / left[..., :-1].clamp_min(SMALLEST)).sqrt()
    return weight * (logits[..., :-1] - moment[..., 1:] / rest.clamp_min(SMALLEST))


def signed_gradients(
    net: nn.Module, weights: Sequence[Tensor], x: Batch, roots: Roots, generator: torch.Generator | None = None
) -> tuple[Tensor | None, ...]:
    """Return gradients whose squares are, in the mean, the sum over the rows of ``x`` of diag(J^T H J).

    There is none for weights that these rows do not use. The net is in eval mode: no dropout, no batch statistics.
    """
    if count_rows(x) == 0:
        raise ValueError("no curvature can be seen in an empty batch")
    with torch.enable_grad(), eval_mode(net):
        values = roots(mean_forward(net, x))
        total = (values * _signs(values.detach(), Pass("mean", generator=generator))).sum()
    return torch.autograd.grad(total, weights, allow_unused=True)


def _signs(like: Tensor, p: Pass) -> Tensor:
    if like.dim() == 2 and launch.supports(like):
        noise = fused.local_noise(torch.zeros_like(like), torch.ones_like(like), *p.new_noise(like.device), 1)
        return noise.sign()
    return p.signs(tuple(like.shape), like)
