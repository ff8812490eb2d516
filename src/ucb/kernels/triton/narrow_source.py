# mypy: ignore-errors
"""A narrow linear layer with noisy outputs, in Triton's language. Import this module only where Triton is installed.

Few outputs fit into one tile, so that a program needs no second one; ``width`` is their number, filled up to what a
matrix product of the hardware takes. What stands in the filled places is finite and meets a 0, or is not stored.
``narrow`` says what each kernel is for.
"""

import triton
import triton.language as tl

from ucb.kernels.triton.fused_source import four_normals, soft


@triton.jit
def moments(mu, rho, keep, at, inside):
    """Return means and variances of weights, 0 where pruned."""
    mean = tl.load(mu + at, mask=inside, other=0.0)
    sigma, _, _, _ = soft(tl.load(rho + at, mask=inside, other=0.0))
    variance = sigma * sigma
    if keep is not None:
        kept = tl.load(keep + at, mask=inside, other=0) != 0
        mean = tl.where(kept, mean, 0.0)
        variance = tl.where(kept, variance, 0.0)
    return mean, variance


@triton.jit(do_not_specialize=["salt"])
def forward_kernel(
    x,
    mu,
    rho,
    keep,
    bias_mu,
    bias_rho,
    bias_keep,
    seed,
    salt,
    out,
    slope,
    rows,
    inputs,
    outputs,
    precision: tl.constexpr,
    width: tl.constexpr,
    block_rows: tl.constexpr,
    block: tl.constexpr,
    pieces: tl.constexpr,
):
    """Write a block of rows of mean + sqrt(variance) * eps, and their derivatives by the variance."""
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    output = tl.arange(0, width)
    is_row = row < rows
    is_output = output < outputs
    # One small tile would be computed by all warps alike: each has a piece of the columns instead.
    part_means = tl.zeros([pieces, block_rows, width], dtype=tl.float32)
    part_variances = tl.zeros([pieces, block_rows, width], dtype=tl.float32)
    each: tl.constexpr = block // pieces
    piece = tl.arange(0, pieces)[:, None, None] * each + tl.arange(0, each)[None, None, :]
    along_x = row[None, :, None] * inputs + piece
    along_weights = output[None, :, None] * inputs + piece
    for start in range(0, inputs, block):
        is_column = start + piece < inputs
        values = tl.load(x + start + along_x, mask=is_row[None, :, None] & is_column, other=0.0)
        there = is_output[None, :, None] & is_column
        means, squares = moments(mu, rho, keep, start + along_weights, there)
        part_means = tl.dot(values, tl.permute(means, (0, 2, 1)), part_means, input_precision=precision)
        squares = tl.permute(squares, (0, 2, 1))
        part_variances = tl.dot(values * values, squares, part_variances, input_precision=precision)
    mean = tl.sum(part_means, axis=0)
    variance = tl.sum(part_variances, axis=0)
    if bias_mu is not None:
        means, squares = moments(bias_mu, bias_rho, bias_keep, output, is_output)
        mean += means[None, :]
        variance += squares[None, :]
    at = row[:, None] * outputs + output[None, :]
    inside = is_row[:, None] & is_output[None, :]
    eps, _, _, _ = four_normals(tl.load(seed) + salt, at)
    spread = tl.sqrt(variance)
    some = spread > 0
    tl.store(out + at, mean + spread * eps, mask=inside)
    tl.store(slope + at, tl.where(some, eps / (2.0 * tl.where(some, spread, 1.0)), 0.0), mask=inside)


@triton.jit
def input_kernel(
    grad,
    slope,
    x,
    mu,
    rho,
    keep,
    by_x,
    rows,
    inputs,
    outputs,
    precision: tl.constexpr,
    width: tl.constexpr,
    block_rows: tl.constexpr,
    block: tl.constexpr,
):
    """Write a tile of the gradient by the input."""
    column = tl.program_id(0) * block + tl.arange(0, block)
    row = tl.program_id(1) * block_rows + tl.arange(0, block_rows)
    output = tl.arange(0, width)
    is_row = (row < rows)[:, None]
    is_column = (column < inputs)[None, :]
    is_output = output < outputs
    there = row[:, None] * outputs + output[None, :]
    by_mean = tl.load(grad + there, mask=is_row & is_output[None, :], other=0.0)
    by_variance = by_mean * tl.load(slope + there, mask=is_row & is_output[None, :], other=0.0)
    place = output[:, None] * inputs + column[None, :]
    means, squares = moments(mu, rho, keep, place, is_output[:, None] & is_column)
    at = row[:, None] * inputs + column[None, :]
    values = tl.load(x + at, mask=is_row & is_column, other=0.0)
    through_mean = tl.dot(by_mean, means, input_precision=precision)
    through_variance = tl.dot(by_variance, squares, input_precision=precision)
    tl.store(by_x + at, through_mean + 2.0 * values * through_variance, mask=is_row & is_column)


@triton.jit
def weights_kernel(
    grad,
    slope,
    x,
    parts,
    bias_parts,
    rows,
    inputs,
    outputs,
    chunk,
    precision: tl.constexpr,
    width: tl.constexpr,
    block_rows: tl.constexpr,
    block: tl.constexpr,
):
    """Write one chunk of rows' share of the gradients by the weights' means and variances, and by the biases'."""
    column = tl.program_id(0) * block + tl.arange(0, block)
    output = tl.arange(0, width)
    is_column = (column < inputs)[None, :]
    is_output = output < outputs
    by_mean = tl.zeros([width, block], dtype=tl.float32)
    by_variance = tl.zeros([width, block], dtype=tl.float32)
    bias_by_mean = tl.zeros([block_rows, width], dtype=tl.float32)
    bias_by_variance = tl.zeros([block_rows, width], dtype=tl.float32)
    first = tl.program_id(1) * chunk
    for start in range(first, first + chunk, block_rows):
        row = start + tl.arange(0, block_rows)
        is_row = (row < rows)[:, None]
        there = row[:, None] * outputs + output[None, :]
        g = tl.load(grad + there, mask=is_row & is_output[None, :], other=0.0)
        h = g * tl.load(slope + there, mask=is_row & is_output[None, :], other=0.0)
        values = tl.load(x + row[:, None] * inputs + column[None, :], mask=is_row & is_column, other=0.0)
        by_mean = tl.dot(tl.trans(g), values, by_mean, input_precision=precision)
        by_variance = tl.dot(tl.trans(h), values * values, by_variance, input_precision=precision)
        bias_by_mean += g
        bias_by_variance += h
    place = output[:, None] * inputs + column[None, :]
    inside = is_output[:, None] & is_column
    part = parts + 2 * tl.program_id(1) * outputs * inputs + place
    tl.store(part, by_mean, mask=inside)
    tl.store(part + outputs * inputs, by_variance, mask=inside)
    if bias_parts is not None:
        part = bias_parts + 2 * tl.program_id(1) * outputs + output
        inside = tl.program_id(0) * width + output < outputs  # in the first program alone
        tl.store(part, tl.sum(bias_by_mean, axis=0), mask=inside)
        tl.store(part + outputs, tl.sum(bias_by_variance, axis=0), mask=inside)


@triton.jit
def finish(parts, rho, keep, by_mu, by_rho, at, n, chunks: tl.constexpr):
    """Sum the chunks' shares and go on from the variance to rho; 0 where pruned."""
    inside = at < n
    by_mean = tl.load(parts + at, mask=inside, other=0.0)
    by_variance = tl.load(parts + n + at, mask=inside, other=0.0)
    for i in tl.static_range(1, chunks):  # unrolled: the loads do not wait for each other
        by_mean += tl.load(parts + 2 * i * n + at, mask=inside, other=0.0)
        by_variance += tl.load(parts + (2 * i + 1) * n + at, mask=inside, other=0.0)
    sigma, sigmoid, _, _ = soft(tl.load(rho + at, mask=inside, other=0.0))
    by_variance *= 2.0 * sigma * sigmoid
    if keep is not None:
        kept = tl.load(keep + at, mask=inside, other=0) != 0
        by_mean = tl.where(kept, by_mean, 0.0)
        by_variance = tl.where(kept, by_variance, 0.0)
    tl.store(by_mu + at, by_mean, mask=inside)
    tl.store(by_rho + at, by_variance, mask=inside)


@triton.jit
def finish_kernel(
    parts,
    rho,
    keep,
    by_mu,
    by_rho,
    bias_parts,
    bias_rho,
    bias_keep,
    bias_by_mu,
    bias_by_rho,
    n,
    outputs,
    chunks: tl.constexpr,
    block: tl.constexpr,
):
    """Write the gradients by mu and rho of n weights, and of the biases."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    finish(parts, rho, keep, by_mu, by_rho, at, n, chunks)
    if bias_rho is not None:  # all of them are in the first block
        finish(bias_parts, bias_rho, bias_keep, bias_by_mu, bias_by_rho, at, outputs, chunks)
