/* What a task of attention works with: where its request's keys and values are in the cache, and the scratch memory of
 * a thread. What comes next is asked for ahead. */
#pragma once
#include "matmul.h"
#include "values.h"

#ifndef SEGMENT
#define SEGMENT 256 /* keys: shorter ones share out better, and cost more to fold */
#endif
#define QUERY_ROWS (W == 16 ? 96 : 48) /* rows wanted in a task: enough to pay for bringing the keys into order */

struct layout {
    int heads, kv_heads, dim, block_size;
    enum kind kind; /* of the cache: FLOAT32 or BFLOAT16 */
    float scale;
};

struct row { /* tokens [start, start + count) of one request, packed from `first` on */
    int64_t first, start, count, table; /* table: where its blocks begin in the step's block table */
};

struct attention {
    struct layout layout;
    const struct row *rows;
    const int64_t *blocks;
    void *keys, *values;   /* of one layer: (blocks, kv_heads, block_size, dim) */
    const float *qkv;      /* (tokens, (heads + 2 * kv_heads) * dim), rotated */
    void *out;             /* (tokens, heads * dim), float or bfloat16 */
    int pairs;             /* multiply in bfloat16, and round what comes out */
    struct attention_task *tasks;
    int num_tasks, threads;
    float *partials;       /* per task: sums of its segment, when segments are shared out */
    char *scratch;         /* per thread */
    size_t scratch_bytes;
};

struct attention_task {
    int row, kv_head, token, tokens; /* tokens of the row, from `token` on */
    int segment, segments;           /* this of so many, each a task, side by side; 0 of 1: all that there are */
    int finished;                    /* of the first task of such: how many are done */
};

struct sums { /* of the keys so far */
    float *values;       /* (rows, padded dim), weighted */
    float *most, *total; /* (rows): largest score; sum of weights relative to it */
};

INLINE int padded_dim(int dim) { return (dim + PANEL - 1) / PANEL * PANEL; }
INLINE int query_tokens(const struct layout *l) { return MAX(1, QUERY_ROWS / (l->heads / l->kv_heads)); }

INLINE size_t sums_numbers(const struct layout *l, int rows) {
    return ((size_t)rows * (padded_dim(l->dim) + 2) + 15) / 16 * 16;
}
INLINE struct sums sums_at(const struct layout *l, float *at, int rows) {
    float *most = at + (size_t)rows * padded_dim(l->dim);
    return (struct sums){at, most, most + rows};
}
/* Of one task that may share its token with others. */
INLINE size_t partial_numbers(const struct layout *l) { return sums_numbers(l, l->heads / l->kv_heads); }

struct attention_scratch {
    uint32_t *keys;             /* CHUNK keys in panels of PANEL keys */
    void *values;               /* (CHUNK, padded dim); as pairs of keys: panels of (CHUNK / 2, PANEL) */
    void *queries;              /* (rows, dim) */
    uint16_t *weights;          /* (rows, CHUNK): scores as bfloat16 */
    float *scores;              /* (rows, CHUNK) */
    float *all, *part;          /* struct sums of all segments so far, and of this one */
    size_t *places;             /* of each key and value of a segment, in bytes; after them CHUNK of what comes next */
    uint32_t *nothing;          /* dim units of zero */
};

static size_t lay_out_scratch(const struct layout *l, char *base, struct attention_scratch *s) {
    size_t rows = (size_t)query_tokens(l) * (l->heads / l->kv_heads), wide = padded_dim(l->dim), used = 0;
    size_t sums = sums_numbers(l, (int)rows);
#define PLACE(field, count) (s->field = (void *)(base + used), used += ((count) * 4 + 63) / 64 * 64)
    PLACE(keys, (size_t)CHUNK * l->dim);
    PLACE(values, CHUNK * wide);
    PLACE(queries, rows * l->dim);
    PLACE(scores, rows * CHUNK);
    PLACE(weights, rows * CHUNK / 2);
    PLACE(all, sums);
    PLACE(part, sums);
    PLACE(places, (SEGMENT + CHUNK) * sizeof(size_t) / 4);
    PLACE(nothing, l->dim);
#undef PLACE
    return used;
}

INLINE int bytes_of(const struct layout *l) { return l->kind == FLOAT32 ? 4 : 2; }

INLINE int64_t keys_of(const struct attention *a, const struct attention_task *task) {
    return a->rows[task->row].start + task->token + task->tokens;
}

/* Where keys, and values, from number `from` on are: of this task, and at most `most`. Returns how many. */
static int find_places(const struct attention *a, const struct attention_task *task, int64_t from, int most,
                       size_t *places) {
    const struct layout *l = &a->layout;
    size_t bytes = (size_t)l->dim * bytes_of(l);
    const int64_t *block = a->blocks + a->rows[task->row].table + from / l->block_size;
    int count = (int)MIN(most, keys_of(a, task) - from);
    for (int key = 0, in = (int)(from % l->block_size); key < count; in = 0, block++) {
        size_t place = (size_t)((*block * l->kv_heads + task->kv_head) * l->block_size + in) * bytes;
        int some = MIN(l->block_size - in, count - key);
        for (int i = 0; i < some; i++) places[key + i] = place + i * bytes;
        key += some;
    }
    return count;
}

/* The CHUNK places after those of keys up to `end`: what this thread probably needs next, or the last place again. */
static void find_next_places(const struct attention *a, const struct attention_task *task, int64_t end,
                             size_t *places) {
    const struct attention_task *behind = a->tasks + a->num_tasks;
    int count = 0, is_over = task->segments > 1 || end == keys_of(a, task);
    if (is_over) task = behind - task > a->threads ? task + a->threads : behind;
    if (task < behind) count = find_places(a, task, is_over ? (int64_t)task->segment * SEGMENT : end, CHUNK, places);
    for (int key = count; key < CHUNK; key++) places[key] = places[key - 1];
}

/* Memory answers while the chunk before is computed, be it another task's. Half of a chunk is asked for while its
 * forerunner is brought into order, half when that is multiplied: no more requests may wait at once. */
INLINE void ask_for(const struct layout *l, const void *cache, const size_t *places, int from, int to) {
    int bytes = l->dim * bytes_of(l);
    for (int key = from; key < to; key++)
        for (int i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)cache + places[key] + i, 0, CACHE_AHEAD);
}
