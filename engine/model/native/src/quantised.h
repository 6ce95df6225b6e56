/* Rows times weights that are small whole numbers, summed exactly: the rows become whole numbers of 16 bits.
 *
 * A row of `inputs` numbers is padded with zeros to PADDED_TO: pairs of int16, then its scale (float32), then for each
 * SUM_GROUP inputs the sum of their int16 (int32). A panel is, group by group: for each of its PANEL outputs one unit
 * of scales (INT8: float32; INT4: scale and low as bfloat16, scale in the low half), then units of codes, PANEL side by
 * side. Each half of a unit belongs to one input of a pair and holds its codes of 2 (INT8) or 4 (INT4) pairs that
 * follow each other, the first in the lowest bits; INT8 is stored with 128 added. Within a group whole numbers are
 * added, in any order the same; groups follow in their order. */
#pragma once
#include "vector.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define PADDED_TO 64
#define SUM_GROUP 32
#define WHOLE_MOST (W == 16 ? 12 : 6) /* rows of one tile */
#define ADDED 128    /* to a code of 8 bits, so that it is taken out without its sign */

typedef int16_t vs __attribute__((vector_size(4 * W)));
typedef uint16_t vw __attribute__((vector_size(4 * W)));
typedef int16_t vn __attribute__((vector_size(2 * W)));
typedef int16_t vn_any __attribute__((vector_size(2 * W), aligned(2), may_alias));
typedef float whole_float __attribute__((may_alias));
typedef int32_t whole_int __attribute__((may_alias));

INLINE int padded_inputs(int inputs) { return (inputs + PADDED_TO - 1) / PADDED_TO * PADDED_TO; }
/* Units of a row: pairs, scale, sums. */
INLINE int whole_row_units(int inputs) { return padded_inputs(inputs) / 2 + 1 + padded_inputs(inputs) / SUM_GROUP; }
INLINE int group_of(int bits) { return bits == 8 ? 64 : 32; }
INLINE int pairs_of_unit(int bits) { return 16 / bits; }
/* Units of one group of a panel of `panel` outputs. */
INLINE int group_units(int bits, int panel) { return panel * (1 + group_of(bits) / 2 / pairs_of_unit(bits)); }

INLINE vi multiply_whole_pairs(vs a, vs b) {
#if defined(__AVX512BW__) && W == 16
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__) && W == 8
    return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__) && W == 4
    return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    vi x = (vi)a, y = (vi)b;
    return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

INLINE vi add_whole_pairs(vi sum, vs a, vs b) {
#if defined(__AVX512VNNI__) && W == 16
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
    return sum + multiply_whole_pairs(a, b);
#endif
}

/* The pair number `pair` of W units. */
INLINE vs take_codes(const int bits, vu units, int pair) {
    vw codes = (vw)units >> (unsigned short)(bits * pair);
    return (vs)(pair == pairs_of_unit(bits) - 1 ? codes : codes & (unsigned short)((1 << bits) - 1));
}

/* What the first panel of a group begins with: what ADDED has added too much. */
INLINE vi begin_sums(const int bits, const whole_int *inputs, int group) {
    return (bits == 8 ? -ADDED * (inputs[2 * group] + inputs[2 * group + 1]) : 0) + (vi){0};
}

/* a: rows `lda` units apart. b: panels `panel` units apart. steps: pairs of inputs. out (rows, panels * 2 W). */
INLINE void whole_tile(const int bits, const int rows, const int panels, const uint32_t *a, size_t lda,
                       const uint32_t *b, size_t panel, int steps, float *out, size_t ldo) {
    const int per_unit = pairs_of_unit(bits), group = group_of(bits) / 2, units = group_units(bits, 2 * W);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 2 * panels; v++) store_f(out + r * ldo + v * W, (vf){0});
    for (int g = 0; g < steps / group; g++, b += units) {
        vi sums[12][4];
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < 2 * panels; v++)
                sums[r][v] = begin_sums(bits, (const whole_int *)(a + r * lda + steps + 1), g);
        const uint32_t *at = b + 2 * W;
        for (int s = 0; s < group; s += per_unit, at += 2 * W) {
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++) ask_for_units(at + p * panel + UNITS_AHEAD);
#pragma GCC unroll 4
            for (int pair = 0; pair < per_unit; pair++) {
                vs weights[4];
#pragma GCC unroll 4
                for (int v = 0; v < 2 * panels; v++)
                    weights[v] = take_codes(bits, load_u(at + v / 2 * panel + v % 2 * W), pair);
#pragma GCC unroll 12
                for (int r = 0; r < rows; r++) {
                    vs x = (vs)all_f(*(const whole_float *)(a + r * lda + g * group + s + pair));
#pragma GCC unroll 4
                    for (int v = 0; v < 2 * panels; v++) {
                        sums[r][v] = add_whole_pairs(sums[r][v], x, weights[v]);
                        KEEP_IN_REGISTER(sums[r][v]);
                    }
                }
            }
        }
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < 2 * panels; v++) {
                vu scales = load_u(b + v / 2 * panel + v % 2 * W);
                float *to = out + r * ldo + v * W;
                vf scale = bits == 8 ? (vf)scales : pair_low(scales);
                vf sum = load_f(to) + __builtin_convertvector(sums[r][v], vf) * scale;
                if (bits == 4) sum += (float)((const whole_int *)(a + r * lda + steps + 1))[g] * pair_high(scales);
                store_f(to, sum);
            }
    }
    for (int r = 0; r < rows; r++) {
        float scale = *(const whole_float *)(a + r * lda + steps);
        for (int v = 0; v < 2 * panels; v++) store_f(out + r * ldo + v * W, load_f(out + r * ldo + v * W) * scale);
    }
}

#define WHOLE_ARGUMENTS \
    const uint32_t *a, size_t lda, const uint32_t *b, size_t panel, int steps, float *out, size_t ldo
#define WHOLE_TILE(bits, rows, panels)                                                                \
    static void whole_##bits##_##rows##_##panels(WHOLE_ARGUMENTS) {                                   \
        whole_tile(bits, rows, panels, a, lda, b, panel, steps, out, ldo);                            \
    }
#define WHOLE_CASE(bits, rows, panels) \
    case (bits * 16 + rows) * 4 + panels: whole_##bits##_##rows##_##panels(a, lda, from, panel, steps, to, ldo); break;
#define WHOLE_ALL(X, bits) X(bits, 1, 1) X(bits, 1, 2) X(bits, 2, 1) X(bits, 2, 2) X(bits, 3, 1) X(bits, 4, 1) \
    X(bits, 5, 1) X(bits, 6, 1) MORE_ROWS(X, bits)
#if W == 16
#define MORE_ROWS(X, bits) X(bits, 7, 1) X(bits, 8, 1) X(bits, 9, 1) X(bits, 10, 1) X(bits, 11, 1) X(bits, 12, 1)
#else
#define MORE_ROWS(X, bits)
#endif
WHOLE_ALL(WHOLE_TILE, 8)
WHOLE_ALL(WHOLE_TILE, 4)

/* (rows, count * 2 W) */
static void run_whole_tiles(int bits, int rows, int count, WHOLE_ARGUMENTS) {
    for (int first = 0; first < rows; first += WHOLE_MOST, a += WHOLE_MOST * lda, out += WHOLE_MOST * ldo) {
        int some = MIN(WHOLE_MOST, rows - first), most = some <= 2 ? 2 : 1;
        for (int p = 0; p < count; p += most) {
            const uint32_t *from = b + p * panel;
            float *to = out + p * 2 * W;
            switch ((bits * 16 + some) * 4 + MIN(most, count - p)) {
                WHOLE_ALL(WHOLE_CASE, 8)
                WHOLE_ALL(WHOLE_CASE, 4)
            }
        }
    }
}

/* One row for whole_tile. What is no finite number makes its whole result none. */
static void write_whole_row(const float *from, int inputs, uint32_t *to) {
    int padded = padded_inputs(inputs), i = 0;
    int16_t *numbers = (int16_t *)to;
    float most;
    vf top = {0}, bad = {0};
    for (; i + W <= inputs; i += W) {
        vf x = load_f(from + i);
        vf size = (vf)((vu)x & 0x7fffffffu);
        top = larger(size, top);
        bad += x - x;
    }
    most = max_of(top) + sum_of(bad);
    for (; i < inputs; i++) most = (fabsf(from[i]) > most ? fabsf(from[i]) : most) + (from[i] - from[i]);
    float factor = most > 1e-30f ? 32767.0f / most : 0; /* never for a NaN */
    *(whole_float *)(to + padded / 2) = most / 32767.0f;
    const vf magic = all_f(12582912.0f);
    for (i = 0; i + W <= inputs && factor > 0; i += W) {
        vf x = load_f(from + i) * factor + magic;
        *(vn_any *)(numbers + i) = (vn_any)__builtin_convertvector((vi)x - (vi)magic, vn);
    }
    if (factor > 0)
        for (; i < inputs; i++) numbers[i] = (int16_t)rintf(from[i] * factor);
    memset(numbers + i, 0, (padded - i) * 2);
    for (int g = 0; g < padded / SUM_GROUP; g++) {
        int sum = 0;
        for (i = 0; i < SUM_GROUP; i++) sum += numbers[g * SUM_GROUP + i];
        ((whole_int *)to)[padded / 2 + 1 + g] = sum;
    }
}

/* Output `row` of a panel, back to floats. */
static void unpack_whole_row(int bits, const uint32_t *panel, int row, int inputs, float *to) {
    int group = group_of(bits), per_unit = pairs_of_unit(bits), units = group_units(bits, 2 * W);
    for (int i = 0; i < inputs; i++) {
        const uint32_t *at = panel + (size_t)(i / group) * units + row;
        int pair = i % group / 2;
        int code = at[(1 + pair / per_unit) * 2 * W] >> (i % 2 * 16 + pair % per_unit * bits) & ((1 << bits) - 1);
        if (bits == 8) to[i] = *(const whole_float *)at * (float)(code - ADDED);
        else to[i] = widen_one((uint16_t)*at) * (float)code + widen_one((uint16_t)(*at >> 16));
    }
}
