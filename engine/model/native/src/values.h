/* Sums of weighted values of a few rows, straight from the cache: fewer rows than bringing them into panels pays for.
 * The same chains of multiply-adds as a tile's (matmul.h), so a row has the same bits either way. */
#pragma once
#include "matmul.h"

#define CHUNK 64     /* keys that are attended to at once */
#define VALUE_ROWS 6 /* that are few */

/* weights: rows `ldw` apart. places: of `count` keys in the cache, in bytes, and of CHUNK more to be asked for. sums:
 * rows `lds` apart, added to. */
#define VALUE_ARGUMENTS \
    const float *weights, size_t ldw, const char *values, const size_t *places, int count, float *sums, size_t lds

/* Of a panel in bfloat16, even numbers and odd ones are summed apart: a pair is widened sooner than two halves. */
INLINE void value_tile(const enum kind kind, const int rows, const int panels, VALUE_ARGUMENTS) {
    const int bytes = kind == FLOAT32 ? 4 : 2;
    vf part[VALUE_ROWS][2 * MAX_UNIT];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; v++) part[r][v] = (vf){0};
    for (int key = 0; key < count; key++) {
        const char *from = values + places[key], *later = values + places[key + CHUNK];
#pragma GCC unroll 8
        for (int i = 0; i < panels * PANEL * bytes; i += 64) __builtin_prefetch(later + i);
        vf x[VALUE_ROWS];
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) x[r] = all_f(weights[r * ldw + key]);
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; v++) {
            vu units = load_u((const uint32_t *)from + (kind == FLOAT32 ? v : v / 2) * W);
            vf value = kind == FLOAT32 ? (vf)units : v % 2 ? pair_high(units) : pair_low(units);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                MULTIPLY_ADD(part[r][v], value, x[r]);
                KEEP_IN_REGISTER(part[r][v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; v++) {
            float *to = sums + r * lds + v * W;
            if (kind == BFLOAT16 && v % 2 == 0) zip(&part[r][v], &part[r][v + 1]);
            store_f(to, load_f(to) + part[r][v]);
        }
}

#define VALUE_TILE(kind, rows, panels)                                        \
    static void value_tile_##kind##_##rows##_##panels(VALUE_ARGUMENTS) {      \
        value_tile(kind, rows, panels, weights, ldw, values, places, count, sums, lds); \
    }
FEW_ROWS(VALUE_TILE, FLOAT32)
FEW_ROWS(VALUE_TILE, BFLOAT16)

#define VALUE_CASE(kind, rows, panels)                                                                    \
    case ((kind) * 16 + (rows)) * 8 + (panels):                                                           \
        value_tile_##kind##_##rows##_##panels(weights, ldw, values, places, count, sums, lds); break;
/* sums (rows, dim). rows: at most VALUE_ROWS. dim: whole panels. */
static void run_value_tiles(enum kind kind, int rows, int dim, const float *weights, size_t ldw, const char *values,
                            const size_t *places, int count, float *sums) {
    int most = most_panels(rows), bytes = kind == FLOAT32 ? 4 : 2;
    size_t lds = dim;
    for (int panel = 0; panel < dim / PANEL; panel += most, values += most * PANEL * bytes, sums += most * PANEL)
        switch ((kind * 16 + rows) * 8 + MIN(most, dim / PANEL - panel)) {
            FEW_ROWS(VALUE_CASE, FLOAT32)
            FEW_ROWS(VALUE_CASE, BFLOAT16)
        }
}
