/* The keys and values that the next layer attends to: products that compute wait for no memory, attention waits for
 * little else, so the products' tiles ask for them. They go through the second cache to the third, and come back from
 * there three times as fast as from memory. */
#pragma once
#include "matmul.h"
#include "places.h"
#include "pool.h"

#define MOST_RUNS 4096 /* 8 MB: what is certain to be there still */
#define BLOCKS_BEFORE_LATER 2 /* of rows: they ask for what the product itself reads */

struct later {
    int count;
    struct runs all; /* of one layer's keys and values, in the order of attention's tasks */
    int64_t places[MOST_RUNS];
    struct share { /* of a thread: what it has not asked for yet */
        _Alignas(64) int at;
        int end;
    } shares[MAX_THREADS];
};

/* Of every layer alike; of none when no product of so many tokens has a block of rows that asks. apart: bytes from keys
 * to values. */
static void find_runs(struct later *later, const struct layout *l, int tokens, const struct row *rows, int num_rows,
                      const int64_t *blocks, int64_t apart) {
    int64_t bytes = (int64_t)l->kv_heads * l->block_size * l->dim * bytes_of(l);
    later->count = 0;
    if (W < 16 || tokens <= BLOCKS_BEFORE_LATER * TILE_MOST) return;
    for (const struct row *row = rows; row < rows + num_rows && later->count + 2 <= MOST_RUNS; row++)
        for (int64_t i = 0; i < (row->start + l->block_size - 1) / l->block_size; i++)
            for (int64_t at = 0; at < bytes && later->count + 2 <= MOST_RUNS; at += RUN_BYTES) {
                int64_t place = blocks[row->table + i] * bytes + at;
                later->places[later->count++] = place;
                later->places[later->count++] = place + apart;
            }
}

/* keys: of the layer that comes next. */
static void ask_later(struct later *later, const char *keys, int threads) {
    later->all = (struct runs){keys, later->places};
    for (int t = 0; t < threads; t++)
        later->shares[t] = (struct share){(int)((int64_t)later->count * t / threads),
                                          (int)((int64_t)later->count * (t + 1) / threads)};
}

/* For a tile of so many steps; NULL when not so many are left. A second panel beside it asks for the same: others for
 * each brought nothing. */
INLINE const struct runs *next_runs(struct later *later, int thread, int steps, struct runs *runs) {
    int count = (steps + RUN_STEPS - 1) / RUN_STEPS;
    if (later == NULL || later->shares[thread].end - later->shares[thread].at < count) return NULL;
    *runs = (struct runs){later->all.base, later->all.places + later->shares[thread].at};
    later->shares[thread].at += count;
    return runs;
}
