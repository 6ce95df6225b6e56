/* Attention of a few rows in bfloat16 pairs, straight from the cache: keys and values are brought into order in
 * registers and multiplied there. For more rows it pays to leave them in order in memory (attention.h). The same chains
 * of multiply-adds as a tile's (matmul.h), so a row has the same bits either way. */
#pragma once
#include "matmul.h"
#include "places.h"

#define PAIR_ROWS 6      /* that are few */
#define KEYS_TOGETHER 16 /* side by side in one block of the cache */

#if HAS_PAIRS && W == 16 && defined(__AVX512BW__)
/* Whether the rows are few, and the cache is cut as it is read here. Tile registers sum up in another order. */
INLINE int takes_few(const struct attention *a, int rows) {
    const struct layout *l = &a->layout;
    int is_cut_so = l->block_size % KEYS_TOGETHER == 0 && l->dim % PANEL == 0;
    return a->pairs && rows <= PAIR_ROWS && is_cut_so && !(HAS_TILES && tiles_allowed());
}

/* Scores of up to `groups` times 16 keys, of which `count` count: (rows, CHUNK). queries: (rows, units). next: places
 * of `asked` keys that are asked for meanwhile. */
INLINE void score_tile(const int rows, const int groups, const uint32_t *queries, size_t units, const char *keys,
                       const size_t *places, const size_t *next, size_t asked, int count, float *scores) {
    vf sums[PAIR_ROWS][4];
    const uint32_t *from[4];
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++) {
        from[g] = (const uint32_t *)(keys + places[g * KEYS_TOGETHER < count ? g * KEYS_TOGETHER : 0]);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) sums[r][g] = (vf){0};
    }
    for (size_t u = 0; u < units; u += 4) {
        for (size_t key = u * asked / units; key < (u + 4) * asked / units; key++)
            for (size_t i = 0; i < units; i += LINE_UNITS)
                __builtin_prefetch(keys + next[key] + 4 * i, 0, CACHE_AHEAD);
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) {
            vu columns[4];
            const uint32_t *rows_of[KEYS_TOGETHER];
#pragma GCC unroll 16
            for (int key = 0; key < KEYS_TOGETHER; key++) rows_of[key] = from[g] + key * units;
            load_columns(rows_of, u, columns);
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++)
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    add_product(PAIRS, &sums[r][g], number(PAIRS, queries + r * units + u + c), columns[c]);
                    KEEP_IN_REGISTER(sums[r][g]);
                }
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) store_f(scores + r * CHUNK + g * KEYS_TOGETHER, sums[r][g]);
}

/* Adds `count` weighted values to sums, (rows, dim) numbers of which `panels` panels are meant. weights: pairs, (rows,
 * CHUNK / 2), zero past the last key. As many values further on are asked for meanwhile. */
INLINE void value_pairs_tile(const int rows, const int panels, const uint32_t *weights, const char *values,
                             const size_t *places, int count, const uint32_t *nothing, float *sums, size_t dim) {
    vf part[PAIR_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 2 * panels; v++) part[r][v] = (vf){0};
    for (int key = 0; key < count; key += 2) {
        const char *one = values + places[key], *other = (const char *)nothing;
        if (key + 1 < count) other = values + places[key + 1];
        const size_t *next = places + count + key;
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            __builtin_prefetch(values + next[0] + 64 * p, 0, CACHE_AHEAD);
            __builtin_prefetch(values + next[1] + 64 * p, 0, CACHE_AHEAD);
            vu joined[2];
            join_pairs((const uint16_t *)one + p * PANEL, (const uint16_t *)other + p * PANEL, joined);
#pragma GCC unroll 2
            for (int v = 0; v < 2; v++)
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    vu weight = number(PAIRS, weights + r * (CHUNK / 2) + key / 2);
                    add_product(PAIRS, &part[r][2 * p + v], weight, joined[v]);
                    KEEP_IN_REGISTER(part[r][2 * p + v]);
                }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 2 * panels; v++) {
            float *to = sums + r * dim + v * W;
            store_f(to, load_f(to) + part[r][v]);
        }
}

/* Four groups of keys leave no register to spare from five rows on. */
INLINE void score_rows(const int rows, const uint32_t *queries, size_t units, const char *keys, const size_t *places,
                       int count, float *scores) {
    const size_t *next = places + count;
    if (rows <= 4 && count > 3 * KEYS_TOGETHER) {
        score_tile(rows, 4, queries, units, keys, places, next, CHUNK, count, scores);
        return;
    }
    for (int at = 0; at < count; at += 2 * KEYS_TOGETHER)
        score_tile(rows, 2, queries, units, keys, places + at, next, at == 0 ? CHUNK : 0, count - at, scores + at);
}

INLINE void weigh_rows(const int rows, const uint32_t *weights, const char *values, const size_t *places, int count,
                       const uint32_t *nothing, float *sums, size_t dim) {
    size_t i = 0;
    for (; i + 2 * PANEL <= dim; i += 2 * PANEL)
        value_pairs_tile(rows, 2, weights, values + 2 * i, places, count, nothing, sums + i, dim);
    if (i < dim) value_pairs_tile(rows, 1, weights, values + 2 * i, places, count, nothing, sums + i, dim);
}

#define EACH_FEW(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define SCORE_CASE(rows) \
    case rows: score_rows(rows, s->queries, a->layout.dim / 2, a->keys, places, count, s->scores); break;
#define WEIGH_CASE(rows)                                                                                       \
    case rows:                                                                                                \
        weigh_rows(rows, (uint32_t *)s->weights, a->values, places, count, s->nothing, to, a->layout.dim); break;

/* Of the chunk of `count` keys at `places`; as many after them are asked for. */
static void score_few(const struct attention *a, struct attention_scratch *s, const size_t *places, int count,
                      int rows) {
    switch (rows) { EACH_FEW(SCORE_CASE) }
}

/* Adds the chunk's values by their weights to (rows, dim). */
static void weigh_few(const struct attention *a, struct attention_scratch *s, const size_t *places, int count,
                      float *to, int rows) {
    switch (rows) { EACH_FEW(WEIGH_CASE) }
}
#else
INLINE int takes_few(const struct attention *a, int rows) {
    (void)a, (void)rows;
    return 0;
}
static inline void score_few(const struct attention *a, struct attention_scratch *s, const size_t *places, int count,
                             int rows) {
    (void)a, (void)s, (void)places, (void)count, (void)rows;
}
static inline void weigh_few(const struct attention *a, struct attention_scratch *s, const size_t *places, int count,
                             float *to, int rows) {
    (void)a, (void)s, (void)places, (void)count, (void)to, (void)rows;
}
#endif
