/* Attention of new tokens over their request's keys and values, read through the block table alone.
 *
 * One task is one KV head of a few tokens of one request: the heads that share it, times the tokens, are the rows of
 * two small products over CHUNK keys at a time, with the softmax kept running. Chunks begin at multiples of CHUNK, so a
 * token's result has the same bits whatever else is in the step. Keys past the last token are never read. */
#pragma once
#include "matmul.h"
#include "pieces.h"

#define CHUNK 64
#define QUERY_ROWS 48 /* rows wanted in a task: enough to pay for bringing the keys into order */

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
    const struct attention_task *tasks;
    char *scratch;         /* per thread */
    size_t scratch_bytes;
};

struct attention_task {
    int row, kv_head, token, tokens; /* tokens of the row, from `token` on */
};

INLINE int padded_dim(int dim) { return (dim + PANEL - 1) / PANEL * PANEL; }
INLINE int query_tokens(const struct layout *l) { return MAX(1, QUERY_ROWS / (l->heads / l->kv_heads)); }

struct attention_scratch {
    uint32_t *keys;             /* CHUNK keys in panels of PANEL keys */
    void *values;               /* (CHUNK, padded dim); as pairs of keys: panels of (CHUNK / 2, PANEL) */
    void *queries;              /* (rows, dim) */
    uint16_t *weights;          /* (rows, CHUNK): scores as bfloat16 */
    float *scores;              /* (rows, CHUNK) */
    float *sums;                /* (rows, padded dim) */
    float *most, *total;        /* (rows) */
    uint32_t *nothing;          /* dim units of zero */
};

static size_t lay_out_scratch(const struct layout *l, char *base, struct attention_scratch *s) {
    size_t rows = (size_t)query_tokens(l) * (l->heads / l->kv_heads), wide = padded_dim(l->dim), used = 0;
#define PLACE(field, count) (s->field = (void *)(base + used), used += ((count) * 4 + 63) / 64 * 64)
    PLACE(keys, (size_t)CHUNK * l->dim);
    PLACE(values, CHUNK * wide);
    PLACE(queries, rows * l->dim);
    PLACE(scores, rows * CHUNK);
    PLACE(weights, rows * CHUNK / 2);
    PLACE(sums, rows * wide);
    PLACE(most, rows);
    PLACE(total, rows);
    PLACE(nothing, l->dim);
#undef PLACE
    return used;
}

/* Where key or value number `position` of this head is, in units of `bytes` a number. */
INLINE const char *cached(const struct attention *a, const void *cache, const int64_t *blocks, int64_t position, int head,
                          int bytes) {
    const struct layout *l = &a->layout;
    int64_t place = (blocks[position / l->block_size] * l->kv_heads + head) * l->block_size + position % l->block_size;
    return (const char *)cache + place * l->dim * bytes;
}

static void load_keys(const struct attention *a, struct attention_scratch *s, const int64_t *blocks, int64_t from,
                      int count, int head) {
    int bytes = a->layout.kind == FLOAT32 ? 4 : 2, units = a->layout.dim * bytes / 4;
    for (int key = 0; key < count; key += W) {
        const uint32_t *rows[W];
        for (int i = 0; i < W; i++)
            rows[i] = key + i < count
                          ? (const uint32_t *)cached(a, a->keys, blocks, from + key + i, head, bytes)
                          : s->nothing;
        transpose_rows(rows, units, s->keys + key / PANEL * PANEL * units + key % PANEL, PANEL);
    }
    for (int key = (count + W - 1) / W * W; key % PANEL != 0; key += W)
        for (int u = 0; u < units; u++) memset(s->keys + key / PANEL * PANEL * units + key % PANEL + u * PANEL, 0, 4 * W);
}

static void load_values(const struct attention *a, struct attention_scratch *s, const int64_t *blocks, int64_t from,
                        int count, int head) {
    int dim = a->layout.dim, wide = padded_dim(dim), i;
    for (int key = 0; key < count; key++) {
        float *to = (float *)s->values + key * wide;
        if (a->layout.kind == FLOAT32) {
            memcpy(to, cached(a, a->values, blocks, from + key, head, 4), dim * 4);
        } else {
            const uint16_t *halves = (const uint16_t *)cached(a, a->values, blocks, from + key, head, 2);
            for (i = 0; i + W <= dim; i += W) store_f(to + i, widen(halves + i));
            for (; i < dim; i++) to[i] = widen_one(halves[i]);
        }
    }
}

/* Number i of two neighbouring keys side by side, zeros past the last key. Returns how many pairs. */
static int load_value_pairs(const struct attention *a, struct attention_scratch *s, const int64_t *blocks, int64_t from,
                            int count, int head) {
    int dim = a->layout.dim, pairs = (count + 31) / 32 * 16, i;
    for (int pair = 0; pair < pairs; pair++) {
        const uint16_t *rows[2];
        for (int j = 0; j < 2; j++)
            rows[j] = 2 * pair + j < count
                          ? (const uint16_t *)cached(a, a->values, blocks, from + 2 * pair + j, head, 2)
                          : (const uint16_t *)s->nothing;
        uint32_t *to = (uint32_t *)s->values + pair * PANEL;
        for (i = 0; i + W <= dim; i += W)
            store_u(to + i / PANEL * PANEL * (CHUNK / 2) + i % PANEL, join(rows[0] + i, rows[1] + i));
        for (; i < dim; i++)
            to[i / PANEL * PANEL * (CHUNK / 2) + i % PANEL] = rows[0][i] | (uint32_t)rows[1][i] << 16;
    }
    return pairs;
}

/* scores (rows, CHUNK) of `count` keys become weights relative to the running maximum; sums are brought to it.
 * Row r sees keys below `visible` of its token only. */
static void running_softmax(const struct attention *a, struct attention_scratch *s, int rows, int count, int64_t visible) {
    int share = a->layout.heads / a->layout.kv_heads, wide = padded_dim(a->layout.dim);
    int used = (count + W - 1) / W * W;
    for (int r = 0; r < rows; r++) {
        float *scores = s->scores + r * CHUNK;
        int64_t limit = MAX(0, MIN(visible + r / share, count));
        for (int i = limit; i < used; i++) scores[i] = -INFINITY;
        vf top = all_f(-INFINITY);
        for (int i = 0; i < used; i += W) {
            vf x = load_f(scores + i);
            top = pick(x > top, x, top);
        }
        float before = s->most[r], most = MAX(before, max_of(top));
        vf sum = {0}, shift = all_f(most);
        for (int i = 0; i < used; i += W) {
            vf weights = exp_v(load_f(scores + i) - shift);
            store_f(scores + i, weights);
            if (a->pairs) narrow(s->weights + r * CHUNK + i, weights);
            sum += weights;
        }
        if (a->pairs) memset(s->weights + r * CHUNK + used, 0, (CHUNK - used) * 2);
        vf factor = exp_v(all_f(before - most));
        s->most[r] = most;
        s->total[r] = s->total[r] * factor[0] + sum_of(sum);
        for (int i = 0; i < wide; i += W) store_f(s->sums + r * wide + i, load_f(s->sums + r * wide + i) * factor);
    }
}

/* steps: keys, or pairs of keys. */
static void add_values(const struct attention *a, struct attention_scratch *s, int rows, int steps) {
    int wide = padded_dim(a->layout.dim), panels = wide / PANEL;
    int most = most_rows(a->pairs ? PAIRS : FLOAT32, steps);
    _Alignas(64) float result[MAX_ROWS * MAX_UNIT * PANEL];
    for (int r = 0; r < rows; r += most) {
        int some = MIN(most, rows - r);
        for (int panel = 0; panel < panels; panel += MAX_UNIT) {
            int width = MIN(MAX_UNIT, panels - panel) * PANEL;
            if (a->pairs)
                run_tiles(PAIRS, some, width / PANEL, (uint32_t *)(s->weights + r * CHUNK), CHUNK / 2,
                          (uint32_t *)s->values + panel * PANEL * (CHUNK / 2), PANEL, PANEL * (CHUNK / 2), steps, result,
                          width, NULL);
            else
                run_tiles(FLOAT32, some, width / PANEL, (uint32_t *)(s->scores + r * CHUNK), CHUNK,
                          (uint32_t *)s->values + panel * PANEL, wide, PANEL, steps, result, width, NULL);
            for (int i = 0; i < some; i++) {
                float *to = s->sums + (r + i) * wide + panel * PANEL;
                for (int j = 0; j < width; j += W) store_f(to + j, load_f(to + j) + load_f(result + i * width + j));
            }
        }
    }
}

static void attention_task(void *argument, int number, int thread) {
    const struct attention *a = argument;
    const struct attention_task *task = &a->tasks[number];
    const struct layout *l = &a->layout;
    const struct row *row = &a->rows[task->row];
    const int64_t *blocks = a->blocks + row->table;
    struct attention_scratch s;
    lay_out_scratch(l, a->scratch + thread * a->scratch_bytes, &s);
    int share = l->heads / l->kv_heads, rows = task->tokens * share, dim = l->dim, wide = padded_dim(dim);
    int units = l->kind == FLOAT32 ? dim : dim / 2, width = a->pairs ? dim / 2 : dim;
    enum kind kind = a->pairs ? PAIRS : l->kind;
    int most = most_rows(kind, units);
    size_t stride = (size_t)(l->heads + 2 * l->kv_heads) * dim;
    int64_t token = row->first + task->token, start = row->start + task->token;
    for (int r = 0; r < rows; r++) {
        const float *q = a->qkv + (token + r / share) * stride + (task->kv_head * share + r % share) * dim;
        float *scaled = a->pairs ? s.scores : (float *)s.queries + r * dim;
        for (int i = 0; i < dim; i++) scaled[i] = q[i] * l->scale;
        if (a->pairs) write_numbers((uint16_t *)s.queries + r * dim, scaled, dim, 1);
        s.most[r] = -INFINITY;
        s.total[r] = 0;
    }
    memset(s.sums, 0, (size_t)rows * wide * 4);
    int64_t length = start + task->tokens;
    for (int64_t from = 0; from < length; from += CHUNK) {
        int count = (int)MIN(CHUNK, length - from);
        load_keys(a, &s, blocks, from, count, task->kv_head);
        int steps = count;
        if (a->pairs) steps = load_value_pairs(a, &s, blocks, from, count, task->kv_head);
        else load_values(a, &s, blocks, from, count, task->kv_head);
        for (int r = 0; r < rows; r += most)
            run_tiles(kind, MIN(most, rows - r), (count + PANEL - 1) / PANEL, (uint32_t *)s.queries + r * width, width,
                      s.keys, PANEL, (size_t)PANEL * units, units, s.scores + r * CHUNK, CHUNK, NULL);
        running_softmax(a, &s, rows, count, start + 1 - from);
        add_values(a, &s, rows, steps);
    }
    for (int r = 0; r < rows; r++) {
        size_t to = (token + r / share) * (size_t)l->heads * dim + (task->kv_head * share + r % share) * dim;
        for (int i = 0; i < dim; i++) {
            float result = s.sums[r * wide + i] / s.total[r];
            if (a->pairs) ((uint16_t *)a->out)[to + i] = narrow_one(result);
            else ((float *)a->out)[to + i] = result;
        }
    }
    if (a->pairs) tiles_release();
}

/* Returns how many tasks there are; writes them unless `tasks` is NULL. The longest first. */
static int attention_tasks(const struct layout *l, const struct row *rows, int num_rows, struct attention_task *tasks) {
    int count = 0, step = query_tokens(l);
    for (int row = 0; row < num_rows; row++)
        for (int64_t end = rows[row].count; end > 0; end -= step)
            for (int head = 0; head < l->kv_heads; head++, count++)
                if (tasks != NULL) {
                    int begin = (int)MAX(0, end - step);
                    tasks[count] = (struct attention_task){row, head, begin, (int)end - begin};
                }
    return count;
}
