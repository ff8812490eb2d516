# mypy: ignore-errors
"""The loops over every weight, for a GPU, in Triton's language. Import this module only where Triton is installed.

One program works on one block of elements and keeps what it computes in registers. Noise is never stored: a number that
is needed again is made again from the same counter. An argument that is None costs nothing, since a kernel is compiled
anew for it. ``fused`` says what each kernel is for.
"""

import triton
import triton.language as tl


@triton.jit
def log1p_ratio(e):
    """Return log(1 + e) / e for e from 0 to 1, to the last digits: 2 atanh(e / (2 + e)) / e."""
    z = e / (2.0 + e)
    y = z * z
    series = 1.0 / 11.0 + y * (1.0 / 13.0)
    series = 1.0 / 7.0 + y * (1.0 / 9.0 + y * series)
    series = 1.0 + y * (1.0 / 3.0 + y * (1.0 / 5.0 + y * series))
    return 2.0 / (2.0 + e) * series


@triton.jit
def soft(x):
    """Return softplus(x), its derivative sigmoid(x), log softplus(x) and the derivative of that.

    For negative x softplus(x) is exp(x) * ratio, and exp(x) is left out of the last two before it can underflow.
    """
    e = tl.exp(-tl.abs(x))
    ratio = log1p_ratio(e)
    softplus = tl.maximum(x, 0.0) + e * ratio
    rest = tl.where(x >= 0, softplus, ratio)
    sigmoid = tl.where(x >= 0, 1.0, e) / (1.0 + e)
    return softplus, sigmoid, tl.minimum(x, 0.0) + tl.log(rest), 1.0 / ((1.0 + e) * rest)


@triton.jit
def inverse_softplus(s):
    """Return log(exp(s) - 1): by a series where s is small, and without overflow where it is large."""
    series = 1.0 + s * (1.0 / 6.0) * (1.0 + s * (1.0 / 7.0) * (1.0 + s * (1.0 / 8.0)))
    series = 1.0 + s * (1.0 / 3.0) * (1.0 + s * (1.0 / 4.0) * (1.0 + s * (1.0 / 5.0) * series))
    small = s * (1.0 + s * 0.5 * series)
    is_small = s < 0.5
    return tl.where(is_small, 0.0, s) + tl.log(tl.where(is_small, small, 1.0 - tl.exp(-s)))


@triton.jit
def cosine_and_sine(bits):
    """Return cosine and sine of 2 pi bits / 2^32, from what is left beyond the nearest quarter of a turn."""
    half_turns = bits.to(tl.int32, bitcast=True).to(tl.float32) * 4.656612873077393e-10
    quarter = tl.floor(2.0 * half_turns + 0.5)
    f = half_turns - 0.5 * quarter
    y = f * f
    sine = f * (3.1415926536 + y * (-5.1677127800 + y * (2.5501640399 + y * (-0.5992645293 + y * 0.0821458866))))
    cosine = 0.2353306304 - y * 0.0258068914
    cosine = 1.0 + y * (-4.9348022005 + y * (4.0587121264 + y * (-1.3352627689 + y * cosine)))
    is_odd = tl.abs(quarter) == 1.0
    c = tl.where(is_odd, sine, cosine)
    s = tl.where(is_odd, cosine, sine)
    c = tl.where((quarter > 0.5) | (quarter < -1.5), -c, c)
    s = tl.where((quarter < -0.5) | (quarter > 1.5), -s, s)
    return c, s


@triton.jit
def four_normals(key, counter):
    """Return four standard normals of a counter (Box and Muller), with polynomials for the angle, not the full sine."""
    b0, b1, b2, b3 = tl.randint4x(key, counter)
    # In (0, 1]; the half step keeps the logarithm finite.
    r0 = tl.sqrt(-2.0 * tl.log(b0.to(tl.uint32, bitcast=True).to(tl.float32) * 2.3283064365e-10 + 1.1641532183e-10))
    r2 = tl.sqrt(-2.0 * tl.log(b2.to(tl.uint32, bitcast=True).to(tl.float32) * 2.3283064365e-10 + 1.1641532183e-10))
    c1, s1 = cosine_and_sine(b1)
    c3, s3 = cosine_and_sine(b3)
    return r0 * c1, r0 * s1, r2 * c3, r2 * s3


@triton.jit
def pick(n0, n1, n2, n3, j: tl.constexpr):
    """Return one of the four normals of a counter."""
    if j == 0:
        found = n0
    elif j == 1:
        found = n1
    elif j == 2:
        found = n2
    else:
        found = n3
    return found


@triton.jit
def one_normal_each(key, first, block: tl.constexpr):
    """Return one standard normal for each of ``block`` elements: element i has normal i % 4 of counter i // 4."""
    n0, n1, n2, n3 = four_normals(key, first // 4 + tl.arange(0, block // 4))
    return tl.join(tl.join(n0, n2), tl.join(n1, n3)).reshape(block)


@triton.jit
def mixture_at(value, k, b, c):
    """Return f(w) = k w^2 + softplus(b + c w^2) and its derivative."""
    square = value * value
    fade, odds, _, _ = soft(b + c * square)
    return k * square + fade, 2.0 * value * (k + c * odds)


@triton.jit(do_not_specialize=["salt"])
def sample_kernel(mu, rho, keep, seed, salt, w, n, samples: tl.constexpr, block: tl.constexpr):
    """Write w[s] = mu + softplus(rho) * eps[s], 0 where pruned."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    mean = tl.load(mu + at, mask=inside, other=0.0)
    sigma, _, _, _ = soft(tl.load(rho + at, mask=inside, other=0.0))
    if keep is not None:
        kept = tl.load(keep + at, mask=inside, other=0) != 0
        mean = tl.where(kept, mean, 0.0)
        sigma = tl.where(kept, sigma, 0.0)
    key = tl.load(seed) + salt
    target = w + at
    width: tl.constexpr = 4 if samples > 4 else samples
    for g in range((samples + 3) // 4):  # not unrolled: the registers of one group must do
        n0, n1, n2, n3 = four_normals(key, at + g * n)
        for j in tl.static_range(width):
            tl.store(target, mean + sigma * pick(n0, n1, n2, n3, j), mask=inside & (4 * g + j < samples))
            target += n  # samples * n may be more than 32 bits hold; a pointer has 64


@triton.jit(do_not_specialize=["salt"])
def gradients_kernel(
    mu,
    rho,
    keep,
    seed,
    salt,
    grad_w,
    grad_square,
    out_mu,
    out_rho,
    parts,
    n,
    k,
    b,
    c,
    factor,
    entropy,
    samples: tl.constexpr,
    prior_samples: tl.constexpr,
    most: tl.constexpr,
    add_mu: tl.constexpr,
    add_rho: tl.constexpr,
    valued: tl.constexpr,
    block: tl.constexpr,
):
    """Turn gradients by w and by sigma^2 into those by mu and rho, with the mixture's and the entropy's share."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    live = inside
    if keep is not None:
        live = inside & (tl.load(keep + at, mask=inside, other=0) != 0)
    mean = tl.load(mu + at, mask=inside, other=0.0)
    sigma, slope, log_sigma, log_slope = soft(tl.load(rho + at, mask=inside, other=0.0))
    by_mean = tl.zeros([block], dtype=tl.float32)
    by_sigma = tl.zeros([block], dtype=tl.float32)
    log_p = tl.zeros([block], dtype=tl.float32)
    if grad_square is not None:
        by_sigma = 2.0 * sigma * tl.load(grad_square + at, mask=inside, other=0.0)
    key = tl.load(seed) + salt
    if samples > 0:
        source = grad_w + at
    if samples == 0 and most == 1:  # its noise serves nothing else, and making four normals for one is most of the work
        eps = one_normal_each(key, tl.program_id(0) * block, block)
        log_p, score = mixture_at(mean + sigma * eps, k, b, c)
        by_mean = factor * score
        by_sigma += by_mean * eps
    else:
        width: tl.constexpr = 4 if most > 4 else most
        for g in range((most + 3) // 4):
            n0, n1, n2, n3 = four_normals(key, at + g * n)
            for j in tl.static_range(width):
                eps = pick(n0, n1, n2, n3, j)
                grad = tl.zeros([block], dtype=tl.float32)
                if samples > 0:
                    grad = tl.load(source, mask=inside & (4 * g + j < samples), other=0.0)
                    source += n
                if prior_samples > 0:
                    counts = 4 * g + j < prior_samples
                    value, score = mixture_at(mean + sigma * eps, k, b, c)
                    grad += tl.where(counts, factor * score, 0.0)
                    log_p += tl.where(counts, value, 0.0)
                by_mean += grad
                by_sigma += grad * eps
    # The entropy's -1 / sigma * dsigma/drho is written as -dlog sigma/drho, which no small sigma can blow up.
    by_rho = tl.where(live, by_sigma * slope - entropy * log_slope, 0.0)
    by_mean = tl.where(live, by_mean, 0.0)
    if add_mu:
        by_mean += tl.load(out_mu + at, mask=inside, other=0.0)
    tl.store(out_mu + at, by_mean, mask=inside)
    if out_rho is not None:
        if add_rho:
            by_rho += tl.load(out_rho + at, mask=inside, other=0.0)
        tl.store(out_rho + at, by_rho, mask=inside)
    part = parts + 2 * tl.program_id(0)
    if valued:
        tl.store(part, tl.sum(tl.where(live, log_p, 0.0), axis=0))
        tl.store(part + 1, tl.sum(tl.where(live, log_sigma, 0.0), axis=0))
    else:
        tl.store(part, tl.sum(tl.where(inside, by_mean * by_mean, 0.0), axis=0))
        if out_rho is not None:
            tl.store(part + 1, tl.sum(tl.where(inside, by_rho * by_rho, 0.0), axis=0))


@triton.jit
def descend_kernel(mu, rho, grad_mu, grad_rho, scale_mu, scale_rho, keep, factor, n, lr, rho_lr, block: tl.constexpr):
    """Move mu and rho against their gradients times a factor, each weight at its own rate."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    if factor is not None:
        shrunk = tl.load(factor)
        lr *= shrunk
        rho_lr *= shrunk
    by_mu = lr * tl.load(grad_mu + at, mask=inside, other=0.0)
    by_rho = rho_lr * tl.load(grad_rho + at, mask=inside, other=0.0)
    if scale_mu is not None:
        by_mu *= tl.load(scale_mu + at, mask=inside, other=0.0)
    if scale_rho is not None:
        by_rho *= tl.load(scale_rho + at, mask=inside, other=0.0)
    if keep is not None:  # not a mask of loads and stores: they would no longer be made four at a time
        kept = tl.load(keep + at, mask=inside, other=0) != 0
        by_mu = tl.where(kept, by_mu, 0.0)
        by_rho = tl.where(kept, by_rho, 0.0)
    tl.store(mu + at, tl.load(mu + at, mask=inside, other=0.0) - by_mu, mask=inside)
    tl.store(rho + at, tl.load(rho + at, mask=inside, other=0.0) - by_rho, mask=inside)


@triton.jit
def natural_kernel(
    mu,
    rho,
    grad_mu,
    signed,
    curvature,
    precision,
    scale,
    seen,
    keep,
    n,
    lr,
    share,
    beta,
    log_kept,
    by_rows,
    block: tl.constexpr,
):
    """Step the curvature, let rho follow it, and move mu.

    ``share`` is temperature / size, ``log_kept`` log(1 - beta), ``by_rows`` 1 / rows.
    """
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    old = tl.load(rho + at, mask=inside, other=0.0)
    found = tl.load(signed + at, mask=inside, other=0.0)
    h = tl.load(curvature + at, mask=inside, other=0.0)
    delta = tl.load(precision + at, mask=inside, other=1.0) * share
    rate = beta / (1.0 - tl.exp(tl.load(seen) * log_kept))
    h += rate * (found * found * by_rows - h)
    new = inverse_softplus(tl.sqrt(share / (h + delta)))
    step = lr * tl.load(grad_mu + at, mask=inside, other=0.0)
    if scale is not None:
        step *= tl.load(scale + at, mask=inside, other=0.0)
    if keep is not None:
        kept = tl.load(keep + at, mask=inside, other=0) != 0
        new = tl.where(kept, new, old)
        step = tl.where(kept, step, 0.0)
    tl.store(curvature + at, h, mask=inside)
    tl.store(rho + at, new, mask=inside)
    tl.store(mu + at, tl.load(mu + at, mask=inside, other=0.0) - step, mask=inside)


@triton.jit(do_not_specialize=["salt"])
def local_kernel(mean, variance, seed, salt, out, n, features, samples: tl.constexpr, block: tl.constexpr):
    """Write row r * samples + s = mean[r] + sqrt(variance[r]) * eps[s, r]."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    middle = tl.load(mean + at, mask=inside, other=0.0)
    spread = tl.sqrt(tl.maximum(tl.load(variance + at, mask=inside, other=0.0), 0.0))
    key = tl.load(seed) + salt
    target = out + at + (at // features).to(tl.int64) * ((samples - 1) * features)
    width: tl.constexpr = 4 if samples > 4 else samples
    for g in range((samples + 3) // 4):
        n0, n1, n2, n3 = four_normals(key, at + g * n)
        for j in tl.static_range(width):
            tl.store(target, middle + spread * pick(n0, n1, n2, n3, j), mask=inside & (4 * g + j < samples))
            target += features


@triton.jit(do_not_specialize=["salt"])
def local_backward_kernel(
    variance, seed, salt, grad, out_mean, out_variance, n, features, samples: tl.constexpr, block: tl.constexpr
):
    """Sum a row's gradients over its samples: by the mean, and by the variance, 0 where there is none."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    by_mean = tl.zeros([block], dtype=tl.float32)
    by_spread = tl.zeros([block], dtype=tl.float32)
    key = tl.load(seed) + salt
    source = grad + at + (at // features).to(tl.int64) * ((samples - 1) * features)
    width: tl.constexpr = 4 if samples > 4 else samples
    for group in range((samples + 3) // 4):
        n0, n1, n2, n3 = four_normals(key, at + group * n)
        for j in tl.static_range(width):
            g = tl.load(source, mask=inside & (4 * group + j < samples), other=0.0)
            by_mean += g
            by_spread += g * pick(n0, n1, n2, n3, j)
            source += features
    tl.store(out_mean + at, by_mean, mask=inside)
    if out_variance is not None:
        spread = tl.sqrt(tl.maximum(tl.load(variance + at, mask=inside, other=0.0), 0.0))
        some = spread > 0  # a GPU's root of the very smallest numbers is 0
        by_variance = tl.where(some, by_spread / (2.0 * tl.where(some, spread, 1.0)), 0.0)
        tl.store(out_variance + at, by_variance, mask=inside)


@triton.jit
def squared_kernel(rho, keep, grad, out, n, block: tl.constexpr):
    """Write softplus(rho)^2 or, given the gradient by it, the gradient by rho; 0 where pruned."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    sigma, slope, _, _ = soft(tl.load(rho + at, mask=inside, other=0.0))
    result = sigma * sigma
    if grad is not None:
        result = tl.load(grad + at, mask=inside, other=0.0) * (2.0 * sigma * slope)
    if keep is not None:
        result = tl.where(tl.load(keep + at, mask=inside, other=0) != 0, result, 0.0)
    tl.store(out + at, result, mask=inside)
