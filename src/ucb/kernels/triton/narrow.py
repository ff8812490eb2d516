"""A linear layer of few outputs with noise on them, for a GPU: one kernel where PyTorch needs many small ones.

The libraries' matrix products are slow where a layer has ten outputs, as a head has. Here one kernel reads the input
once, multiplies it with the means and, squared, with the variances, and adds the noise. Forward keeps dy/dvariance
instead of the variance: it has the same size, and backward then needs no noise.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ucb.kernels.triton.fused import check_noise
from ucb.kernels.triton.launch import BLOCK, WARPS, apply, blocks, mask_of, module_of, size_of, start, supports

MOST_OUTPUTS = 64
"""They must fit into one tile."""

MOST_INPUTS = 4096
"""One program walks along a whole row; the libraries, which share a long one out, are faster there."""

CHUNKS = 8
"""Parts of the rows, at most, that are summed apart for the weights' gradients, and then always in the same order."""

ROWS = 16
"""Rows that a program multiplies at a time. In forward it has no others: a batch has few, a GPU many processors."""

INPUT_ROWS = 32
"""Rows of one program for the input's gradient, whose tiles are wide enough for several."""

SIDE = 16
"""The least side of a tile that the hardware multiplies."""

TILE = 2048
"""Weights that a program holds at a time."""

STAGES = 4
"""Tiles under way: three are loaded while one is multiplied, which every GPU with such copies has the memory for."""


class GaussianLike(Protocol):
    """What is read of a :class:`ucb.bayes.GaussianLike`."""

    mu: nn.Parameter
    rho: nn.Parameter
    keep: Tensor | None


def is_supported(x: Tensor, weight: GaussianLike, bias: GaussianLike | None) -> bool:
    """Say whether ``narrow_linear`` can work on this input and these weights, and is meant for their sizes."""
    outputs, inputs = weight.mu.shape
    if x.dim() != 2 or x.numel() == 0 or not 0 < outputs <= MOST_OUTPUTS or inputs > MOST_INPUTS:
        return False
    return supports(x, weight.mu, weight.rho, *(() if bias is None else (bias.mu, bias.rho)))


def narrow_linear(x: Tensor, weight: GaussianLike, bias: GaussianLike | None, seed: Tensor, salt: int) -> Tensor:
    """Return one draw of the output of every row: x [rows, inputs] to [rows, outputs].

    The output's noise is that of sample 0 of its elements under ``seed`` and ``salt``. Where the output's variance is 0
    there is neither noise nor a gradient by it.
    """
    more = (None, None, None) if bias is None else (bias.mu, bias.rho, bias.keep)
    return apply(NarrowLinear, x, weight.mu, weight.rho, weight.keep, *more, seed, salt)


class NarrowLinear(torch.autograd.Function):
    """A narrow linear layer under local reparameterisation; see ``narrow_linear``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mu: Tensor,
        rho: Tensor,
        keep: Tensor | None,
        bias_mu: Tensor | None,
        bias_rho: Tensor | None,
        bias_keep: Tensor | None,
        seed: Tensor,
        salt: int,
    ) -> Tensor:
        """Draw the outputs; keep their derivatives by the variance, and how exact the products are to be."""
        _check(x, mu, rho, bias_mu, bias_rho)
        (rows, inputs), outputs = x.shape, len(mu)
        check_noise(rows * outputs, 1, seed, x)
        out, slope = x.new_empty(rows, outputs), x.new_empty(rows, outputs)
        masks = mask_of(keep, mu), None if bias_mu is None else mask_of(bias_keep, bias_mu)
        tensors = (x, mu, rho, masks[0], bias_mu, bias_rho, masks[1], seed, salt, out, slope)
        ctx.tile = _tile(outputs)
        warps = ctx.tile["block"] // SIDE
        sizes = {**ctx.tile, "block_rows": ROWS, "pieces": warps}
        _start("forward_kernel", (-(-rows // ROWS),), warps, *tensors, rows, inputs, outputs, **sizes)
        ctx.save_for_backward(x, mu, rho, keep, bias_rho, bias_keep, slope)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients that are asked for: by the input, and by mu and rho of weights and biases.

        Those of weights and biases are each chunk of rows' share, and then the sum of these.
        """
        x, mu, rho, keep, bias_rho, bias_keep, slope = ctx.saved_tensors
        wanted, tile, mask = ctx.needs_input_grad, ctx.tile, mask_of(keep, mu)
        grad = grad.contiguous()
        size_of(slope, grad)
        (rows, inputs), outputs = x.shape, len(mu)
        across = -(-inputs // tile["block"])
        by_x = by_mu = by_rho = bias_parts = bias_by_mu = bias_by_rho = bias_mask = None
        if wanted[0]:
            by_x = torch.empty_like(x)
            grid, tensors = (across, -(-rows // INPUT_ROWS)), (grad, slope, x, mu, rho, mask, by_x)
            _start("input_kernel", grid, WARPS, *tensors, rows, inputs, outputs, **tile, block_rows=INPUT_ROWS)
        if any(wanted[i] for i in (1, 2, 4, 5)):
            chunk = -(-rows // (CHUNKS * ROWS)) * ROWS
            chunks = -(-rows // chunk)
            parts = x.new_empty(chunks, 2, outputs, inputs)
            by_mu, by_rho = torch.empty_like(rho), torch.empty_like(rho)
            if bias_rho is not None:
                bias_parts = x.new_empty(chunks, 2, outputs)
                bias_by_mu, bias_by_rho = torch.empty_like(bias_rho), torch.empty_like(bias_rho)
                bias_mask = mask_of(bias_keep, bias_rho)
            shares = (grad, slope, x, parts, bias_parts, rows, inputs, outputs, chunk)
            _start("weights_kernel", (across, chunks), WARPS, *shares, **tile, block_rows=ROWS)
            sums = (parts, rho, mask, by_mu, by_rho, bias_parts, bias_rho, bias_mask, bias_by_mu, bias_by_rho)
            n, sizes = outputs * inputs, {"chunks": chunks, "block": BLOCK}
            _start("finish_kernel", (blocks(n),), WARPS, *sums, n, outputs, **sizes)
        return by_x, by_mu, by_rho, None, bias_by_mu, bias_by_rho, None, None, None


def _check(x: Tensor, mu: Tensor, rho: Tensor, bias_mu: Tensor | None, bias_rho: Tensor | None) -> None:
    """Refuse what the kernels would read wrongly."""
    size_of(x)
    size_of(mu, rho)
    fits = x.dim() == mu.dim() == 2 and x.shape[1] == mu.shape[1]
    if not fits or x.device != mu.device:
        raise ValueError(f"an input {tuple(x.shape)} on {x.device} does not fit {tuple(mu.shape)} on {mu.device}")
    if x.numel() == 0 or not 0 < len(mu) <= MOST_OUTPUTS:
        raise ValueError(f"{len(x)} rows of {len(mu)} outputs: one to {MOST_OUTPUTS} outputs and a row are needed")
    if bias_mu is not None:
        size_of(bias_mu, bias_rho)
        if bias_mu.shape != mu.shape[:1] or bias_mu.device != mu.device:
            raise ValueError(f"a bias {tuple(bias_mu.shape)} on {bias_mu.device} does not fit {tuple(mu.shape)}")


def _tile(outputs: int) -> dict[str, Any]:
    """Return the sides of a tile of weights, and how exact its products are: as exact as PyTorch's are set to be."""
    width = max(SIDE, 1 << (outputs - 1).bit_length())
    exact = torch.get_float32_matmul_precision() == "highest"
    return {"width": width, "block": TILE // width, "precision": "ieee" if exact else "tf32"}


def _start(kernel: str, grid: tuple[int, ...], warps: int, *args: Tensor | float | None, **sizes: int | str) -> None:
    start(module_of("narrow_source"), kernel, grid, *args, **sizes, num_warps=warps, num_stages=STAGES)
