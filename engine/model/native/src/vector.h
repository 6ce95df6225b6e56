/* Vectors of W floats in the compiler's own vector types: one source for every width, lowered where a width is not
 * there. Number formats, exp, and the transpose of 32-bit units. Knows nothing of models.
 *
 * A "pair" is one 32-bit unit with two bfloat16 numbers, the even one in the low half. */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef W
#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX__)
#define W 8
#else
#define W 4
#endif
#endif

#define INLINE static inline __attribute__((always_inline))
/* Compiled once: what is inlined at several places may round differently at each. */
#if defined(__clang__)
#define COMPILED_ONCE __attribute__((noinline)) static
#else
#define COMPILED_ONCE __attribute__((noinline, noclone)) static
#endif
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Stops the compiler from moving loads so early that sums are spilled to memory and back. */
#if defined(__AVX512F__) && W == 16
#define KEEP_IN_REGISTER(v) __asm__("" : "+v"(v))
#elif defined(__AVX__) && W == 8
#define KEEP_IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define KEEP_IN_REGISTER(v)
#endif

#define KEEP_ADDRESS(p) __asm__("" : "+r"(p))

/* Memory answers in this time, with one row as with eight. Wide vectors come with a large second cache: what is asked
 * for is brought there, where more may wait, and the CPU itself brings it to the first. */
#define UNITS_AHEAD (W == 16 ? 2048 : 512)
#define CACHE_AHEAD (W == 16 ? 2 : 3) /* as __builtin_prefetch counts */
#define LINE_UNITS 16 /* of a cache line */

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));
typedef float vf_any __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(2 * W), aligned(2), may_alias));
typedef uint32_t vu_half __attribute__((vector_size(4 * W), aligned(2), may_alias));

INLINE vf load_f(const float *p) { return (vf)(*(const vf_any *)p); }
INLINE vu load_u(const uint32_t *p) { return (vu)(*(const vu_any *)p); }
INLINE void store_f(float *p, vf v) { *(vf_any *)p = (vf_any)v; }
INLINE void store_u(uint32_t *p, vu v) { *(vu_any *)p = (vu_any)v; }
INLINE vf all_f(float x) { return x - (vf){0}; }
INLINE vf pick(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

/* The larger, the smaller; the second when either is a NaN. */
INLINE vf larger(vf a, vf b) {
#if defined(__AVX512F__) && W == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return pick(a > b, a, b);
#endif
}
INLINE vf smaller(vf a, vf b) {
#if defined(__AVX512F__) && W == 16
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return pick(a < b, a, b);
#endif
}

/* Bit i for lane i. */
INLINE uint32_t lanes_of(vi mask) {
#if defined(__AVX512DQ__) && W == 16
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX2__) && W == 8
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
#else
    uint32_t bits = 0;
    for (int i = 0; i < W; i++) bits |= (uint32_t)(mask[i] & 1) << i;
    return bits;
#endif
}

INLINE vf pair_low(vu pair) { return (vf)(pair << 16); }
INLINE vf pair_high(vu pair) { return (vf)(pair & 0xffff0000u); }
/* The even numbers of the pairs at p, before which two bytes must be readable. With AVX2 one more load, which begins
 * there, is cheaper between multiply-adds than a shift: a product of 8 rows takes 6 % less (Zen 1). */
INLINE vf load_low(const uint32_t *p) {
#if W == 8
    return pair_high((vu)(*(const vu_half *)((const char *)p - 2)));
#else
    return pair_low(load_u(p));
#endif
}
/* One instruction, which compilers do not find by themselves. */
INLINE vu load_halves(const uint16_t *p) {
#if defined(__AVX2__) && W == 8
    return (vu)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined(__AVX512F__) && W == 16
    return (vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
#else
    return __builtin_convertvector((vh)(*(const vh_any *)p), vu);
#endif
}
INLINE vf widen(const uint16_t *p) { return (vf)(load_halves(p) << 16); }
/* 2 W pairs: numbers of a in the low halves, of b in the high ones. */
INLINE void join_pairs(const uint16_t *a, const uint16_t *b, vu *pairs) {
#if defined(__AVX512BW__) && W == 16
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    __m512i first = _mm512_loadu_si512(a), second = _mm512_loadu_si512(b);
    pairs[0] = (vu)_mm512_permutex2var_epi16(first, low, second);
    pairs[1] = (vu)_mm512_permutex2var_epi16(first, _mm512_add_epi16(low, _mm512_set1_epi16(16)), second);
#else
    for (int i = 0; i < 2; i++) pairs[i] = load_halves(a + i * W) | load_halves(b + i * W) << 16;
#endif
}
INLINE void join(const uint16_t *a, const uint16_t *b, uint32_t *to) {
    vu pairs[2];
    join_pairs(a, b, pairs);
    store_u(to, pairs[0]);
    store_u(to + W, pairs[1]);
}
INLINE float widen_one(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* To nearest, ties to even; a NaN stays one. What is below 2^-126 becomes 0 where the CPU has an instruction for it. */
INLINE uint16_t narrow_one(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if (f != f) return 0x7fc0;
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
INLINE void narrow(uint16_t *p, vf v) {
#if defined(__AVX512BF16__) && W == 16
    __m256bh rounded = _mm512_cvtneps_pbh((__m512)v);
    memcpy(p, &rounded, sizeof rounded);
#else
    vu u = (vu)v;
    vu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    vi is_nan = v != v;
    rounded = (rounded & ~(vu)is_nan) | (0x7fc0 & (vu)is_nan);
    *(vh_any *)p = (vh_any)__builtin_convertvector(rounded, vh);
#endif
}

/* For all lines of 2 W units. */
INLINE void ask_for_units(const uint32_t *p) {
#pragma GCC unroll 2
    for (int i = 0; i < 2 * W; i += LINE_UNITS) __builtin_prefetch(p + i, 0, CACHE_AHEAD);
}

INLINE float sum_of(vf v) {
#if defined(__AVX512F__) && W == 16
    return _mm512_reduce_add_ps((__m512)v);
#else
    float lanes[W], total = 0;
    store_f(lanes, v);
    for (int i = 0; i < W; i++) total += lanes[i];
    return total;
#endif
}
INLINE float max_of(vf v) {
#if defined(__AVX512F__) && W == 16
    return _mm512_reduce_max_ps((__m512)v);
#else
    float lanes[W];
    store_f(lanes, v);
    float best = lanes[0];
    for (int i = 1; i < W; i++) best = lanes[i] > best ? lanes[i] : best;
    return best;
#endif
}

/* exp of what is at most 88, to about 1e-7 of its value; exactly 0 below -87, a NaN stays one. */
INLINE vf exp_low(vf x) {
    const vf magic = all_f(12582912.0f);
    vi tiny = x < -87.0f;
    vf shifted = x * 1.44269504088896341f + magic;
    vf n = shifted - magic;
    vf r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = all_f(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vi exponent = ((vi)shifted - (vi)magic + 127) << 23;
#if defined(__AVX512DQ__) && W == 16
    return (vf)_mm512_maskz_mul_ps((__mmask16)~lanes_of(tiny), (__m512)p, (__m512)exponent);
#else
    return (vf)(~tiny & (vi)(p * (vf)exponent));
#endif
}
/* Of any number; what is larger counts as 88. */
INLINE vf exp_v(vf x) {
    const vf big = all_f(88.0f);
    return exp_low(smaller(big, x));
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLE 1
#endif
#endif

#if defined(HAS_SHUFFLE) && W == 16
#define ZIP_LOW(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(HAS_SHUFFLE) && W == 8
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif defined(HAS_SHUFFLE) && W == 4
#define ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* a[0], b[0], a[1], b[1] and so on: the first half of them to *a, the second to *b. */
INLINE void zip(vf *a, vf *b) {
#if defined(ZIP_LOW)
    vf low = ZIP_LOW(*a, *b), high = ZIP_HIGH(*a, *b);
#else
    vf low, high;
    for (int i = 0; i < W / 2; i++) {
        low[2 * i] = (*a)[i], low[2 * i + 1] = (*b)[i];
        high[2 * i] = (*a)[W / 2 + i], high[2 * i + 1] = (*b)[W / 2 + i];
    }
#endif
    *a = low;
    *b = high;
}

#if defined(HAS_SHUFFLE) && W == 8
typedef uint32_t vq __attribute__((vector_size(16)));
typedef uint32_t vq_any __attribute__((vector_size(16), aligned(4), may_alias));
/* Rows 0..3 beside rows 4..7 while they are loaded: what moves units between the halves of a register is slow. */
INLINE void transpose_half(const uint32_t *const *from, size_t offset, uint32_t *to, size_t stride) {
    vu rows[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        rows[j] = __builtin_shufflevector((vq)(*(const vq_any *)(from[j] + offset)),
                                          (vq)(*(const vq_any *)(from[j + 4] + offset)), 0, 1, 2, 3, 4, 5, 6, 7);
    vu a = __builtin_shufflevector(rows[0], rows[1], 0, 8, 1, 9, 4, 12, 5, 13);
    vu b = __builtin_shufflevector(rows[2], rows[3], 0, 8, 1, 9, 4, 12, 5, 13);
    vu c = __builtin_shufflevector(rows[0], rows[1], 2, 10, 3, 11, 6, 14, 7, 15);
    vu d = __builtin_shufflevector(rows[2], rows[3], 2, 10, 3, 11, 6, 14, 7, 15);
    store_u(to, __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13));
    store_u(to + stride, __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15));
    store_u(to + 2 * stride, __builtin_shufflevector(c, d, 0, 1, 8, 9, 4, 5, 12, 13));
    store_u(to + 3 * stride, __builtin_shufflevector(c, d, 2, 3, 10, 11, 6, 7, 14, 15));
}
#endif

#if defined(__AVX512F__) && W == 16
/* 16 bytes of each of four rows side by side, merged while they are loaded. */
INLINE __m512i load_quarters(const uint32_t *const *from, size_t offset) {
    __m512i four = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(from[0] + offset)));
    four = _mm512_mask_broadcast_i32x4(four, 0x00f0, _mm_loadu_si128((const __m128i *)(from[4] + offset)));
    four = _mm512_mask_broadcast_i32x4(four, 0x0f00, _mm_loadu_si128((const __m128i *)(from[8] + offset)));
    return _mm512_mask_broadcast_i32x4(four, 0xf000, _mm_loadu_si128((const __m128i *)(from[12] + offset)));
}
/* Units offset .. offset + 3 of 16 rows: four columns. What is left after such loads stays within 16 bytes. */
INLINE void load_columns(const uint32_t *const *from, size_t offset, vu *columns) {
    __m512i rows[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) rows[j] = load_quarters(from + j, offset);
    __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]), b = _mm512_unpacklo_epi32(rows[2], rows[3]);
    __m512i c = _mm512_unpackhi_epi32(rows[0], rows[1]), d = _mm512_unpackhi_epi32(rows[2], rows[3]);
    columns[0] = (vu)_mm512_unpacklo_epi64(a, b);
    columns[1] = (vu)_mm512_unpackhi_epi64(a, b);
    columns[2] = (vu)_mm512_unpacklo_epi64(c, d);
    columns[3] = (vu)_mm512_unpackhi_epi64(c, d);
}
INLINE void transpose_quarter(const uint32_t *const *from, size_t offset, uint32_t *to, size_t stride) {
    vu columns[4];
    load_columns(from, offset, columns);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) store_u(to + i * stride, columns[i]);
}
#endif

/* W rows of W units, anywhere in memory, to columns: to[i * stride + j] = from[j][i]. */
INLINE void transpose_square(const uint32_t *const *from, size_t offset, uint32_t *to, size_t stride) {
#if defined(HAS_SHUFFLE) && W == 8
    transpose_half(from, offset, to, stride);
    transpose_half(from, offset + 4, to + 4 * stride, stride);
#elif defined(__AVX512F__) && W == 16
#pragma GCC unroll 4
    for (int i = 0; i < W; i += 4) transpose_quarter(from, offset + i, to + i * stride, stride);
#elif defined(ZIP_LOW)
    vu rows[W], next[W];
    for (int j = 0; j < W; j++) rows[j] = load_u(from[j] + offset);
#pragma GCC unroll 4
    for (int width = 1; width < W; width *= 2) {
#pragma GCC unroll 8
        for (int j = 0; j < W / 2; j++) {
            next[2 * j] = ZIP_LOW(rows[j], rows[j + W / 2]);
            next[2 * j + 1] = ZIP_HIGH(rows[j], rows[j + W / 2]);
        }
#pragma GCC unroll 16
        for (int j = 0; j < W; j++) rows[j] = next[j];
    }
    for (int j = 0; j < W; j++) store_u(to + j * stride, rows[j]);
#else
    for (int i = 0; i < W; i++)
        for (int j = 0; j < W; j++) to[i * stride + j] = from[j][offset + i];
#endif
}

/* `count` rows (W of them, or fewer units than W at the end) of `units` units to columns. */
INLINE void transpose_rows(const uint32_t *const *from, int units, uint32_t *to, size_t stride) {
    int i = 0;
    for (; i + W <= units; i += W) transpose_square(from, i, to + i * stride, stride);
    for (; i < units; i++)
        for (int j = 0; j < W; j++) to[i * stride + j] = from[j][i];
}
