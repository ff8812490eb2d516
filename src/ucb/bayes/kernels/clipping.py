"""A bound on the norm of all gradients together, on a GPU with as few launches as it takes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ucb.bayes.kernels.launch import module_of, serves, start

MOST = 4096
"""Tensors whose norms one program adds up."""


def clip_gradients(parameters: Iterable[nn.Parameter], most: float) -> None:
    """Shorten the gradient if it is longer than ``most``, as ``torch.nn.utils.clip_grad_norm_`` does."""
    parameters = list(parameters)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients or len(gradients) > MOST or not serves(*gradients):
        nn.utils.clip_grad_norm_(parameters, most)
        return
    norms = torch.stack(torch._foreach_norm(gradients))
    torch._foreach_mul_(gradients, factor_for(norms, most))


def factor_for(norms: Tensor, most: float) -> Tensor:
    """Return what shortens tensors of these norms to ``most`` in all, at most 1."""
    factor, width = norms.new_empty(()), 1 << (len(norms) - 1).bit_length()
    start(module_of("triton_source"), "clip_kernel", (1,), norms, factor, len(norms), float(most), width=width)
    return factor
