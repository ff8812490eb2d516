/* What dominates a training step on a CPU beside its matrix products, in one pass over memory each: drawing weights,
 * the score of the scale mixture, and handing a sample's gradient to mean and spread. The PyTorch forms of all three
 * are beside this file, and the tests compare the two.
 *
 * Noise is Philox 4x32-10 (Salmon et al. 2011) followed by Box-Muller. Number i depends on the seed and on i alone,
 * so a tensor may be cut at any multiple of BLOCK and drawn by several threads with the same result.
 *
 * Every loop is written so that a compiler can put neighbouring elements into one vector register; that is why
 * logarithm, exponential and sine are spelled out as polynomials instead of called.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 64, BLOCK = 4 * LANES };

static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* log x for positive, normal x: x = 2^e m with m in [sqrt(1/2), sqrt 2), and log m = 2 artanh((m - 1) / (m + 1)). */
static inline float log_positive(float x) {
    int32_t shifted = (int32_t)(bits_of(x) - 0x3f3504f3u) >> 23;
    float m = float_of(bits_of(x) - ((uint32_t)shifted << 23));
    float z = (m - 1.0f) / (m + 1.0f), s = z * z;
    float series = 2.0f + s * (0.66666667f + s * (0.4f + s * (0.28571429f + s * 0.22222222f)));
    return (float)shifted * 0.69314718f + z * series;
}

/* exp x; below -87 it stays at the smallest normal number, and x must not exceed 80. */
static inline float exp_moderate(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float series = 0.041666667f + r * (0.0083333333f + r * 0.0013888889f);
    series = 1.0f + r * (1.0f + r * (0.5f + r * (0.16666667f + r * series)));
    return series * float_of((uint32_t)((int32_t)n + 127) << 23);
}

/* sin(2 pi t) for t in [-1/4, 1/4]. */
static inline float sine(float t) {
    float y = 6.2831853f * t, s = y * y;
    float series = -1.9841270e-4f + s * (2.7557319e-6f - s * 2.5052108e-8f);
    return y * (1.0f + s * (-0.16666667f + s * (0.0083333333f + s * series)));
}

/* Two random words become two independent normal numbers. */
static inline void box_muller(uint32_t u, uint32_t v, float *first, float *second) {
    float radius = sqrtf(-2.0f * log_positive(((float)(u >> 1) + 0.5f) * 0x1p-31f));
    float turn = (float)((int32_t)v >> 8) * 0x1p-24f, distance = fabsf(turn); /* an angle in [-1/2, 1/2) turns */
    float folded = 0.25f - fabsf(distance - 0.25f);
    *first = radius * sine(0.25f - distance);
    *second = radius * sine(turn < 0 ? -folded : folded);
}

static void normals(uint64_t seed, uint64_t block, float *restrict out) {
    for (uint32_t j = 0; j < LANES; j++) {
        uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = j, d = 0;
        uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            uint64_t p = (uint64_t)a * 0xD2511F53u, q = (uint64_t)c * 0xCD9E8D57u;
            a = (uint32_t)(q >> 32) ^ b ^ key0, b = (uint32_t)q;
            c = (uint32_t)(p >> 32) ^ d ^ key1, d = (uint32_t)p;
            key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
        }
        box_muller(a, b, &out[j], &out[LANES + j]);
        box_muller(c, d, &out[2 * LANES + j], &out[3 * LANES + j]);
    }
}

/* eps ~ N(0, 1), w = mean + sigma * eps, for the elements [begin, end); begin is a multiple of BLOCK. */
void ucb_draw(const float *restrict mean, const float *restrict sigma, float *restrict eps, float *restrict w,
              int64_t begin, int64_t end, uint64_t seed) {
    float noise[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        int n = end - i < BLOCK ? (int)(end - i) : BLOCK;
        normals(seed, (uint64_t)(i / BLOCK), noise);
        for (int j = 0; j < n; j++) {
            eps[i + j] = noise[j];
            w[i + j] = mean[i + j] + sigma[i + j] * noise[j];
        }
    }
}

/* grad_mean += grad, grad_sigma += grad * eps. */
void ucb_accumulate(const float *restrict grad, const float *restrict eps, float *restrict grad_mean,
                    float *restrict grad_sigma, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        grad_mean[i] += grad[i];
        grad_sigma[i] += grad[i] * eps[i];
    }
}

/* The scale mixture log p = a + k w^2 + log(1 + exp(b + c w^2)), with c <= 0 and b <= 80:
 * grad += factor * d log p / dw. Returns the sum of log p - a. */
double ucb_mixture(const float *restrict w, float *restrict grad, int64_t begin, int64_t end, float k, float b, float c,
                   float factor) {
    double total = 0;
    for (int64_t start = begin; start < end; start += 4096) {
        int64_t stop = start + 4096 < end ? start + 4096 : end;
        float part = 0;
        for (int64_t i = start; i < stop; i++) {
            float square = w[i] * w[i], odds = exp_moderate(b + c * square);
            part += k * square + log_positive(1.0f + odds);
            grad[i] += 2.0f * factor * w[i] * (k + c * (odds / (1.0f + odds)));
        }
        total += part;
    }
    return total;
}
