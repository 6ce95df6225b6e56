/* A tile of a product: a few rows times a few panels of a packed matrix.
 *
 * A matrix (n outputs, k inputs) is packed into panels of PANEL outputs: for each input (float32) or pair of inputs
 * (bfloat16) the PANEL units side by side. It is read once, in order, and widened in registers. Every product is one
 * chain of multiply-adds over the inputs in their order, whatever the number of rows: a row gives the same bits alone
 * and in a batch. */
#pragma once
#include "quantised.h"
#include "tiles.h"
#include "vector.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#define PANEL (2 * W)
#define TILE_MOST (W == 16 ? 12 : 6) /* rows of one tile: two accumulators each must stay in registers */
#define MAX_ROWS (W == 16 ? 32 : 6)  /* rows of one call: two tile registers of them */
#define MAX_UNIT 4                  /* panels of one tile */
#define ONE_PANEL_FROM 4            /* rows: tiles of fewer are wider, wait for loads and have no register to spare */

typedef float float_alias __attribute__((may_alias));
/* PAIRS: the rows are bfloat16 too, and the CPU multiplies pairs. WIDENED: as BFLOAT16, and what was widened is kept.
 * INT8, INT4: quantised.h. */
enum kind { FLOAT32, BFLOAT16, PAIRS, WIDENED, INT8, INT4 };
INLINE int is_whole(enum kind kind) { return kind == INT8 || kind == INT4; }
INLINE int bits_of(enum kind kind) { return kind == INT8 ? 8 : 4; }

INLINE vf add_pair_products(vf sum, vu a, vu b) {
#if defined(__AVX512BF16__) && W == 16 && !defined(EMULATE_PAIRS)
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return sum + pair_low(a) * pair_low(b) + pair_high(a) * pair_high(b);
#endif
}
#if (defined(__AVX512BF16__) && W == 16) || defined(EMULATE_PAIRS)
#define HAS_PAIRS 1
#else
#define HAS_PAIRS 0
#endif

/* Left to choose, compilers move sums about between the two halves of a pair: a fifth of the speed with AVX2. */
#if defined(__FMA__) && W == 8
#define MULTIPLY_ADD(sum, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#else
#define MULTIPLY_ADD(sum, a, b) ((sum) += (a) * (b))
#endif

INLINE void add_product(const enum kind kind, vf *sum, vu a, vu b) {
    if (kind == PAIRS) *sum = add_pair_products(*sum, a, b);
    else MULTIPLY_ADD(*sum, (vf)b, (vf)a);
}
/* One number, or pair of them, of a row. Some CPUs broadcast floats faster than integers. */
INLINE vu number(const enum kind kind, const uint32_t *from) {
    return kind == PAIRS ? *from + (vu){0} : (vu)all_f(*(const float_alias *)from);
}

/* A few panels side by side are asked for by wide CPUs themselves, as fast as memory gives them. */
INLINE int asks_ahead(int rows) { return W < 16 || rows >= ONE_PANEL_FROM; }

#define RUN_STEPS 16                      /* of a tile, which ask for a run */
#define RUN_BYTES (RUN_STEPS * PANEL * 4) /* as many as they read */
struct runs { /* anywhere in memory: places[i] bytes from base */
    const char *base;
    const int64_t *places;
};

/* a: rows `lda` units apart. b: rows `ldb` units apart, panels `panel` units apart; in bfloat16 not the first thing in
 * its memory (load_low). ahead: units from b to what is asked for meanwhile, 0 for nothing. runs: asked for instead by
 * ONE_PANEL_FROM rows and more, one for each RUN_STEPS, or NULL. steps: rows of b. out (rows, panels * PANEL):
 * overwritten, or added to. wide: WIDENED puts b there as float32, of one panel. */
INLINE void tile(const enum kind kind, const int rows, const int panels, const uint32_t *a, size_t lda,
                 const uint32_t *b, size_t ldb, size_t panel, size_t ahead, const struct runs *runs, int steps,
                 float *out, size_t ldo, int is_added, float *wide) {
    vf sums[12][2 * MAX_UNIT];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; v++) sums[r][v] = (vf){0};
    const int halves = kind == BFLOAT16 || kind == WIDENED ? 2 : 1;
    /* A register for each row is more than there are; three rows can be told from one by what an address adds. */
    const uint32_t *at[4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r += 3) at[r / 3] = a + r * lda;
    for (int s = 0, end = steps, run = 0; s < steps; run++) {
        if (W == 16 && rows >= ONE_PANEL_FROM && runs != NULL) {
            ahead = (size_t)((runs->base + runs->places[run] - (const char *)b) / 4);
            end = MIN(steps, s + RUN_STEPS);
        }
        for (; s < end; s++, b += ldb) {
#pragma GCC unroll 4
            for (int v = 0; v < panels && ahead != 0 && asks_ahead(rows); v++) ask_for_units(b + v * panel + ahead);
            for (int half = 0; half < halves; half++) {
                /* Whichever is fewer, rows or outputs, stays in registers. */
                vu x[12], weights[2 * MAX_UNIT];
#pragma GCC unroll 12
                for (int r = 0; r < rows && rows < 2 * panels; r++) x[r] = number(kind, at[r / 3] + r % 3 * lda + half);
#pragma GCC unroll 8
                for (int v = 0; v < 2 * panels; v++) {
                    const uint32_t *from = b + (v / 2) * panel + (v % 2) * W;
                    vf low = rows < ONE_PANEL_FROM ? pair_low(load_u(from)) : load_low(from);
                    weights[v] = halves == 1 ? load_u(from) : half ? (vu)pair_high(load_u(from)) : (vu)low;
                    if (kind == WIDENED) store_f(wide + (2 * s + half) * PANEL + v * W, (vf)weights[v]);
                    if (rows >= 2 * panels) continue;
#pragma GCC unroll 12
                    for (int r = 0; r < rows; r++) {
                        add_product(kind, &sums[r][v], x[r], weights[v]);
                        KEEP_IN_REGISTER(sums[r][v]);
                    }
                }
#pragma GCC unroll 12
                for (int r = 0; r < rows && rows >= 2 * panels; r++) {
                    vu one = number(kind, at[r / 3] + r % 3 * lda + half);
#pragma GCC unroll 8
                    for (int v = 0; v < 2 * panels; v++) {
                        add_product(kind, &sums[r][v], one, weights[v]);
                        KEEP_IN_REGISTER(sums[r][v]);
                    }
                }
            }
#pragma GCC unroll 4
            for (int r = 0; r < rows; r += 3) {
                at[r / 3] += halves;
                KEEP_ADDRESS(at[r / 3]);
            }
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; v++) {
            float *to = out + r * ldo + v * W;
            store_f(to, rows >= ONE_PANEL_FROM && is_added ? sums[r][v] + load_f(to) : sums[r][v]);
        }
}

#define TILE_ARGUMENTS                                                                                        \
    const uint32_t *a, size_t lda, const uint32_t *b, size_t ldb, size_t panel, size_t ahead,                 \
        const struct runs *runs, int steps, float *out, size_t ldo, int is_added, float *wide
#define TILE(kind, rows, panels)                                     \
    static void tile_##kind##_##rows##_##panels(TILE_ARGUMENTS) {    \
        tile(kind, rows, panels, a, lda, b, ldb, panel, ahead, runs, steps, out, ldo, is_added, wide); \
    }
#define FEW_ROWS(X, kind) X(kind, 1, 1) X(kind, 1, 2) X(kind, 1, 3) X(kind, 1, 4) X(kind, 2, 1) X(kind, 2, 2) \
    X(kind, 2, 3) X(kind, 3, 1) X(kind, 3, 2) X(kind, 4, 1) X(kind, 5, 1) X(kind, 6, 1)
#if W == 16
#define ALL_ROWS(X, kind) FEW_ROWS(X, kind) X(kind, 7, 1) X(kind, 8, 1) X(kind, 9, 1) X(kind, 10, 1) X(kind, 11, 1) \
    X(kind, 12, 1)
#else
#define ALL_ROWS(X, kind) FEW_ROWS(X, kind)
#endif
ALL_ROWS(TILE, FLOAT32)
ALL_ROWS(TILE, BFLOAT16)
ALL_ROWS(TILE, WIDENED)
#if HAS_PAIRS
ALL_ROWS(TILE, PAIRS)
#endif

/* How many panels a tile of so many rows may have. */
INLINE int most_panels(int rows) { return rows == 1 ? 4 : rows == 2 ? 3 : rows < ONE_PANEL_FROM ? 2 : 1; }

#define TILE_CASE(kind, rows, panels) \
    case ((kind) * 16 + (rows)) * 8 + (panels):                                               \
        tile_##kind##_##rows##_##panels(a, lda, b, ldb, panel, ahead, runs, steps, out, ldo, is_added, wide); break;
static void run_tile(enum kind kind, int rows, int panels, TILE_ARGUMENTS) {
    switch ((kind * 16 + rows) * 8 + panels) {
        ALL_ROWS(TILE_CASE, FLOAT32)
        ALL_ROWS(TILE_CASE, BFLOAT16)
        ALL_ROWS(TILE_CASE, WIDENED)
#if HAS_PAIRS
        ALL_ROWS(TILE_CASE, PAIRS)
#endif
    }
}

INLINE int uses_tiles(enum kind kind, int steps) {
    return HAS_TILES && kind == PAIRS && steps % TILE_PAIRS == 0 && tiles_allowed();
}
INLINE int uses_vectors(enum kind kind, int steps) { return !is_whole(kind) && !uses_tiles(kind, steps); }
INLINE int most_rows(enum kind kind, int steps) { return uses_tiles(kind, steps) ? 2 * TILE_ROWS : TILE_MOST; }

/* (rows, count * PANEL) in as few tiles as the registers allow; rows up to most_rows. Of ONE_PANEL_FROM rows on,
 * tiles of vectors can add. */
static void run_tiles(enum kind kind, int rows, int count, TILE_ARGUMENTS) {
#if HAS_TILES
    if (uses_tiles(kind, steps)) {
        int at_once = rows > TILE_ROWS ? 1 : 2;
        for (int p = 0; p < count; p += at_once)
            tile_block(rows, at_once == 2 && count - p > 1, a, lda, b + p * panel, panel, steps, out + p * PANEL, ldo);
        return;
    }
#endif
    if (is_whole(kind)) {
        run_whole_tiles(bits_of(kind), rows, count, a, lda, b, panel, steps, out, ldo);
        return;
    }
    int most = most_panels(rows);
    for (int p = 0; p < count; p += most)
        run_tile(kind, rows, MIN(most, count - p), a, lda, b + p * panel, ldb, panel, ahead, runs, steps,
                 out + p * PANEL, ldo, is_added, wide);
}

struct matrix {
    int outputs, inputs, panels;
    enum kind kind; /* FLOAT32, BFLOAT16, INT8 or INT4 */
    size_t panel;   /* units */
    uint32_t *data;
};

INLINE int steps_of(const struct matrix *m) {
    return m->kind == FLOAT32 ? m->inputs : is_whole(m->kind) ? padded_inputs(m->inputs) / 2 : m->inputs / 2;
}
