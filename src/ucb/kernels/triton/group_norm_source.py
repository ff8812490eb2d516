# mypy: ignore-errors
"""Group normalisation of pixels whose channels lie side by side, for a GPU, in Triton's language.

One program works on one group of one row: ``pixels`` times ``per_group`` channels, a tile of ``block`` pixels and
``width`` channels (the next power of two) at a time. A group that is ``whole`` fits one tile, which then stays in
registers; a larger one is read twice. Nothing is added atomically, so results repeat to the last bit.

Values count from the group's first one. That lies no further than sqrt(n) standard deviations from the mean of the n,
however far the mean is from 0, so the mean takes no more digits than the values' spread leaves.
"""

import triton
import triton.language as tl


@triton.jit
def columns_of(group, per_group: tl.constexpr, width: tl.constexpr):
    """Return the channels of a group, and which of them it has."""
    place = tl.arange(0, width)
    return group * per_group + place, place < per_group


@triton.jit
def tile(begin, pixels, channels, column, is_column, block: tl.constexpr):
    """Return where the channels of ``block`` pixels lie in a row, and which of them it has."""
    pixel = begin + tl.arange(0, block)
    return pixel[:, None] * channels + column[None, :], (pixel < pixels)[:, None] & is_column[None, :]


@triton.jit
def distances(x, at, inside, origin):
    """Return x - origin, and 0 outside."""
    return tl.where(inside, tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - origin, 0.0)


@triton.jit
def total(values):
    """Return the sum of a tile."""
    return tl.sum(tl.sum(values, axis=1), axis=0)


@triton.jit
def moments(values, inside, count):
    """Return the mean of a tile, and the sum of the squares around it."""
    mean = total(values) / count
    centred = tl.where(inside, values - mean, 0.0)
    return mean, total(centred * centred)


@triton.jit
def scale_of(weight, at, is_column):
    """Return the scale of each channel, 1 where there is none to read."""
    scale = tl.where(is_column, 1.0, 0.0)
    if weight is not None:
        scale = tl.load(weight + at, mask=is_column, other=0.0)
    return scale


@triton.jit
def group_norm_kernel(
    x,
    weight,
    bias,
    y,
    means,
    rstds,
    pixels,
    groups,
    samples,
    eps,
    per_group: tl.constexpr,
    width: tl.constexpr,
    whole: tl.constexpr,
    block: tl.constexpr,
):
    """Write y = (x - mean) / sqrt(variance + eps) * weight + bias; keep the mean, from the first value on, and rstd."""
    program = tl.program_id(0)
    row = program // groups
    channels = groups * per_group
    column, is_column = columns_of(program % groups, per_group, width)
    start = row.to(tl.int64) * channels  # only inside one row 32 bits are enough
    x += start * pixels
    y += start * pixels
    origin = tl.load(x + (program % groups) * per_group).to(tl.float32)
    scale = scale_of(weight, (row % samples) * channels + column, is_column)
    shift = tl.zeros([width], dtype=tl.float32)
    if bias is not None:
        shift = tl.load(bias + (row % samples) * channels + column, mask=is_column, other=0.0)
    count = pixels * per_group * 1.0  # of a number that the compiler knows, .to() would not do
    if whole:
        at, inside = tile(0, pixels, channels, column, is_column, block)
        values = distances(x, at, inside, origin)
        mean, squares = moments(values, inside, count)
        rstd = 1.0 / tl.sqrt(squares / count + eps)
        tl.store(y + at, (values - mean) * (rstd * scale)[None, :] + shift[None, :], mask=inside)
    else:
        mean = 0.0
        squares = 0.0
        for begin in range(0, pixels, block):
            at, inside = tile(begin, pixels, channels, column, is_column, block)
            values = distances(x, at, inside, origin)
            here = tl.minimum(pixels - begin, block) * per_group * 1.0
            before = begin * per_group * 1.0
            mean_here, squares_here = moments(values, inside, here)
            # Two means and two sums of squares join without a difference of large numbers.
            step = (mean_here - mean) * (here / (before + here))
            squares += squares_here + (mean_here - mean) * step * before
            mean += step
        rstd = 1.0 / tl.sqrt(squares / count + eps)
        for begin in range(0, pixels, block):
            at, inside = tile(begin, pixels, channels, column, is_column, block)
            values = distances(x, at, inside, origin)
            tl.store(y + at, (values - mean) * (rstd * scale)[None, :] + shift[None, :], mask=inside)
    tl.store(means + program, mean)
    tl.store(rstds + program, rstd)


@triton.jit
def group_norm_backward_kernel(
    x,
    grad,
    weight,
    means,
    rstds,
    by_x,
    by_weight,
    by_bias,
    pixels,
    groups,
    samples,
    per_group: tl.constexpr,
    width: tl.constexpr,
    whole: tl.constexpr,
    block: tl.constexpr,
):
    """Write the gradient by x, and what each row gives to those by weight and bias.

    With xhat = (x - mean) * rstd it is rstd * (g w - mean(g w) - xhat * mean(g w xhat)), the means taken over the
    group. They follow from the sums of g and of g xhat in each channel, which are the shares of bias and weight.
    """
    program = tl.program_id(0)
    row = program // groups
    channels = groups * per_group
    column, is_column = columns_of(program % groups, per_group, width)
    start = row.to(tl.int64) * channels
    x += start * pixels
    grad += start * pixels
    by_x += start * pixels
    origin = tl.load(x + (program % groups) * per_group).to(tl.float32)
    mean = tl.load(means + program)
    rstd = tl.load(rstds + program)
    scale = scale_of(weight, (row % samples) * channels + column, is_column)
    count = pixels * per_group * 1.0  # of a number that the compiler knows, .to() would not do
    if whole:
        at, inside = tile(0, pixels, channels, column, is_column, block)
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        normal = (distances(x, at, inside, origin) - mean) * rstd
        sum_g = tl.sum(g, axis=0)
        sum_gn = tl.sum(g * normal, axis=0)
        mean_g = tl.sum(scale * sum_g, axis=0) / count
        mean_gn = tl.sum(scale * sum_gn, axis=0) / count
        tl.store(by_x + at, rstd * (g * scale[None, :] - mean_g - normal * mean_gn), mask=inside)
    else:
        sum_g = tl.zeros([width], dtype=tl.float32)
        sum_gn = tl.zeros([width], dtype=tl.float32)
        for begin in range(0, pixels, block):
            at, inside = tile(begin, pixels, channels, column, is_column, block)
            g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
            normal = (distances(x, at, inside, origin) - mean) * rstd
            sum_g += tl.sum(g, axis=0)
            sum_gn += tl.sum(g * normal, axis=0)
        mean_g = tl.sum(scale * sum_g, axis=0) / count
        mean_gn = tl.sum(scale * sum_gn, axis=0) / count
        for begin in range(0, pixels, block):
            at, inside = tile(begin, pixels, channels, column, is_column, block)
            g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
            normal = (distances(x, at, inside, origin) - mean) * rstd
            tl.store(by_x + at, rstd * (g * scale[None, :] - mean_g - normal * mean_gn), mask=inside)
    if by_weight is not None:
        tl.store(by_weight + start + column, sum_gn, mask=is_column)
        tl.store(by_bias + start + column, sum_g, mask=is_column)
