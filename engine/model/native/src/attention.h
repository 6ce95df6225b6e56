/* Attention of new tokens over their request's keys and values, read through the block table alone.
 *
 * One task is one KV head of a few tokens of one request: the heads that share it, times the tokens, are the rows of
 * two small products over CHUNK keys at a time, with the softmax kept running. Chunks begin at multiples of CHUNK,
 * segments at multiples of SEGMENT, and what the segments give is folded in their order, so a token's result has the
 * same bits whatever else is in the step. Who attends to them differs: a single token's segments are a task each, and
 * the last to be done folds; of more tokens one task goes through all. Keys past the last token count for nothing. */
#pragma once
#include "pairs.h"
#include "pieces.h"
#include "places.h"
#include "values.h"

/* places: of `count` keys, and CHUNK further on of as many that are asked for meanwhile. */
static void load_keys(const struct attention *a, struct attention_scratch *s, const size_t *places, int count) {
    int units = a->layout.dim * bytes_of(&a->layout) / 4;
    for (int key = 0; key < count; key += W) {
        const uint32_t *rows[W];
        for (int i = 0; i < W; i++)
            rows[i] = key + i < count ? (const uint32_t *)((const char *)a->keys + places[key + i]) : s->nothing;
        ask_for(&a->layout, a->keys, places + CHUNK, key, MIN(key + W, MIN(count, CHUNK / 2)));
        transpose_rows(rows, units, s->keys + key / PANEL * PANEL * units + key % PANEL, PANEL);
    }
    for (int key = (count + W - 1) / W * W; key % PANEL != 0; key += W)
        for (int u = 0; u < units; u++)
            memset(s->keys + key / PANEL * PANEL * units + key % PANEL + u * PANEL, 0, 4 * W);
}

static void load_values(const struct attention *a, struct attention_scratch *s, const size_t *places, int count) {
    int dim = a->layout.dim, wide = padded_dim(dim), i;
    for (int key = 0; key < count; key++) {
        float *to = (float *)s->values + key * wide;
        const char *from = (const char *)a->values + places[key];
        ask_for(&a->layout, a->values, places + CHUNK, key, MIN(key + 1, CHUNK / 2));
        if (a->layout.kind == FLOAT32) {
            memcpy(to, from, dim * 4);
        } else {
            const uint16_t *halves = (const uint16_t *)from;
            for (i = 0; i + W <= dim; i += W) store_f(to + i, widen(halves + i));
            for (; i < dim; i++) to[i] = widen_one(halves[i]);
        }
    }
}

/* Number i of two neighbouring keys side by side, zeros past the last key. Returns how many pairs. */
static int load_value_pairs(const struct attention *a, struct attention_scratch *s, const size_t *places, int count) {
    int dim = a->layout.dim, pairs = (count + 31) / 32 * 16, i;
    for (int pair = 0; pair < pairs; pair++) {
        const uint16_t *rows[2];
        for (int j = 0; j < 2; j++)
            rows[j] = 2 * pair + j < count ? (const uint16_t *)((const char *)a->values + places[2 * pair + j])
                                           : (const uint16_t *)s->nothing;
        ask_for(&a->layout, a->values, places + CHUNK, 2 * pair, MIN(2 * pair + 2, MIN(count, CHUNK / 2)));
        uint32_t *to = (uint32_t *)s->values + pair * PANEL;
        for (i = 0; i + PANEL <= dim; i += PANEL) join(rows[0] + i, rows[1] + i, to + i * (CHUNK / 2));
        for (; i < dim; i++)
            to[i / PANEL * PANEL * (CHUNK / 2) + i % PANEL] = rows[0][i] | (uint32_t)rows[1][i] << 16;
    }
    return pairs;
}

/* Scores of one row from `limit` on count as nothing. Returns the largest of `used`. */
INLINE float largest_score(float *scores, int limit, int used) {
    for (int i = limit; i < used; i++) scores[i] = -INFINITY;
    vf top = all_f(-INFINITY);
    for (int i = 0; i < used; i += W) {
        vf x = load_f(scores + i);
        top = larger(x, top);
    }
    return max_of(top);
}

/* scores (rows, CHUNK) of `count` keys become weights relative to the running maximum; sums are brought to it.
 * Row r sees keys below `visible` of its token only. W rows at a time take each step together: what one of them waits
 * for is no hindrance to the others. */
static void running_softmax(const struct attention *a, struct attention_scratch *s, struct sums *sums, int rows,
                            int count, int64_t visible) {
    int share = a->layout.heads / a->layout.kv_heads, wide = padded_dim(a->layout.dim);
    int used = (count + W - 1) / W * W;
    for (int first = 0; first < rows; first += W) {
        int some = MIN(W, rows - first);
        float before[W] = {0}, most[W] = {0}, factors[W];
        for (int r = 0; r < some; r++) {
            int limit = (int)MAX(0, MIN(visible + (first + r) / share, count));
            before[r] = sums->most[first + r];
            most[r] = MAX(before[r], largest_score(s->scores + (first + r) * CHUNK, limit, used));
        }
        store_f(factors, exp_low(load_f(before) - load_f(most)));
        for (int r = 0; r < some; r++) {
            float *scores = s->scores + (first + r) * CHUNK;
            uint16_t *narrowed = s->weights + (first + r) * CHUNK;
            vf sum = {0}, shift = all_f(most[r]);
#pragma GCC unroll 4
            for (int i = 0; i < used; i += W) {
                vf weights = exp_low(load_f(scores + i) - shift);
                store_f(scores + i, weights);
                sum += weights;
            }
            if (a->pairs) {
                for (int i = 0; i < used; i += W) narrow(narrowed + i, load_f(scores + i));
                memset(narrowed + used, 0, (CHUNK - used) * 2);
            }
            sums->most[first + r] = most[r];
            sums->total[first + r] = sums->total[first + r] * factors[r] + sum_of(sum);
        }
        for (int r = 0; r < some; r++) {
            float *values = sums->values + (first + r) * wide;
            if (factors[r] != 1) /* for it changes nothing, and is the rule after the first chunks */
                for (int i = 0; i < wide; i += W) store_f(values + i, load_f(values + i) * factors[r]);
        }
    }
}

/* Of the chunk at `places`. Few rows take the values from the cache itself. */
static void add_values(const struct attention *a, struct attention_scratch *s, const size_t *places, int count,
                       struct sums *sums, int rows) {
    int steps = count; /* keys, or pairs of keys */
    if (takes_few(a, rows)) {
        weigh_few(a, s, places, count, sums->values, rows);
        return;
    }
    if (!a->pairs && rows <= VALUE_ROWS && a->layout.dim % PANEL == 0) {
        run_value_tiles(a->layout.kind, rows, a->layout.dim, s->scores, CHUNK, a->values, places, count, sums->values);
        return;
    }
    if (a->pairs) steps = load_value_pairs(a, s, places, count);
    else load_values(a, s, places, count);
    ask_for(&a->layout, a->values, places + CHUNK, CHUNK / 2, count);
    int wide = padded_dim(a->layout.dim), panels = wide / PANEL;
    int most = most_rows(a->pairs ? PAIRS : FLOAT32, steps);
    _Alignas(64) float result[MAX_ROWS * MAX_UNIT * PANEL];
    for (int r = 0; r < rows; r += most) {
        int some = MIN(most, rows - r);
        for (int panel = 0; panel < panels; panel += MAX_UNIT) {
            int width = MIN(MAX_UNIT, panels - panel) * PANEL;
            if (a->pairs)
                run_tiles(PAIRS, some, width / PANEL, (uint32_t *)(s->weights + r * CHUNK), CHUNK / 2,
                          (uint32_t *)s->values + panel * PANEL * (CHUNK / 2), PANEL, PANEL * (CHUNK / 2), 0, NULL,
                          steps, result, width, 0, NULL);
            else
                run_tiles(FLOAT32, some, width / PANEL, (uint32_t *)(s->scores + r * CHUNK), CHUNK,
                          (uint32_t *)s->values + panel * PANEL, wide, PANEL, 0, NULL, steps, result, width, 0, NULL);
            for (int i = 0; i < some; i++) {
                float *to = sums->values + (r + i) * wide + panel * PANEL;
                for (int j = 0; j < width; j += W) store_f(to + j, load_f(to + j) + load_f(result + i * width + j));
            }
        }
    }
}

/* Queries, scaled, in the kind that is multiplied. */
static void load_queries(const struct attention *a, struct attention_scratch *s, const struct attention_task *task,
                         int rows) {
    const struct layout *l = &a->layout;
    int share = l->heads / l->kv_heads, dim = l->dim;
    size_t stride = (size_t)(l->heads + 2 * l->kv_heads) * dim;
    const float *first = a->qkv + (a->rows[task->row].first + task->token) * stride + task->kv_head * share * dim;
    for (int r = 0; r < rows; r++) {
        const float *q = first + r / share * stride + r % share * dim;
        float *scaled = a->pairs ? s->scores : (float *)s->queries + r * dim;
        for (int i = 0; i < dim; i++) scaled[i] = q[i] * l->scale;
        if (a->pairs) write_numbers((uint16_t *)s->queries + r * dim, scaled, dim, 1);
    }
}

/* Scores of the `count` keys at `places`: (rows, CHUNK). */
static void score_keys(const struct attention *a, struct attention_scratch *s, const size_t *places, int count,
                       int rows) {
    const struct layout *l = &a->layout;
    int units = l->dim * bytes_of(l) / 4, width = a->pairs ? l->dim / 2 : l->dim;
    enum kind kind = a->pairs ? PAIRS : l->kind;
    int most = most_rows(kind, units);
    if (takes_few(a, rows)) {
        score_few(a, s, places, count, rows);
        return;
    }
    load_keys(a, s, places, count);
    for (int r = 0; r < rows; r += most)
        run_tiles(kind, MIN(most, rows - r), (count + PANEL - 1) / PANEL, (uint32_t *)s->queries + r * width, width,
                  s->keys, PANEL, (size_t)PANEL * units, 0, NULL, units, s->scores + r * CHUNK, CHUNK, 0, NULL);
    ask_for(l, a->keys, places + CHUNK, CHUNK / 2, count);
}

/* Keys [from, from + count) of one segment, of which token 0 sees `visible`; overwrites `sums`. */
COMPILED_ONCE void attend(const struct attention *a, struct attention_scratch *s, const struct attention_task *task,
                          struct sums *sums, int rows, int64_t from, int count, int64_t visible) {
    const struct layout *l = &a->layout;
    memset(sums->values, 0, (size_t)rows * padded_dim(l->dim) * 4);
    for (int r = 0; r < rows; r++) {
        sums->most[r] = -INFINITY;
        sums->total[r] = 0;
    }
    find_places(a, task, from, count, s->places);
    find_next_places(a, task, from + count, s->places + count);
    ask_for(l, a->keys, s->places, 0, MIN(CHUNK, count));
    for (int at = 0; at < count; at += CHUNK) {
        int some = MIN(CHUNK, count - at);
        if (at == 0) ask_for(l, a->values, s->places, 0, some);
        score_keys(a, s, s->places + at, some, rows);
        running_softmax(a, s, sums, rows, some, visible - at);
        add_values(a, s, s->places + at, some, sums, rows);
    }
}

/* Adds what later keys gave to one row. */
COMPILED_ONCE void fold(const struct layout *l, struct sums *into, const struct sums *from, int row) {
    int wide = padded_dim(l->dim);
    float *to = into->values + (size_t)row * wide, *more = from->values + (size_t)row * wide;
    float most = MAX(into->most[row], from->most[row]);
    vf old = exp_v(all_f(into->most[row] - most)), new = exp_v(all_f(from->most[row] - most));
    into->most[row] = most;
    into->total[row] = into->total[row] * old[0] + from->total[row] * new[0];
    for (int i = 0; i < wide; i += W) store_f(to + i, load_f(to + i) * old + load_f(more + i) * new);
}

static void write_result(const struct attention *a, const struct attention_task *task, const struct sums *sums,
                         int rows) {
    const struct layout *l = &a->layout;
    int share = l->heads / l->kv_heads, dim = l->dim, wide = padded_dim(dim);
    size_t first = (a->rows[task->row].first + task->token) * (size_t)l->heads * dim + task->kv_head * share * dim;
    for (int r = 0; r < rows; r++) {
        size_t to = first + (size_t)(r / share) * l->heads * dim + r % share * dim;
        for (int i = 0; i < dim; i++) {
            float result = sums->values[r * wide + i] / sums->total[r];
            if (a->pairs) ((uint16_t *)a->out)[to + i] = narrow_one(result);
            else ((float *)a->out)[to + i] = result;
        }
    }
}

/* One segment of a single token. Whoever is the last of them folds. */
static void attend_shared(const struct attention *a, struct attention_scratch *s, int number, int rows,
                          int64_t length) {
    struct attention_task *task = &a->tasks[number], *first = task - task->segment;
    size_t apart = partial_numbers(&a->layout);
    float *partials = a->partials + (number - task->segment) * apart;
    struct sums sums = sums_at(&a->layout, partials + task->segment * apart, rows);
    int64_t from = (int64_t)task->segment * SEGMENT;
    attend(a, s, task, &sums, rows, from, (int)MIN(SEGMENT, length - from), length - from);
    if (__atomic_add_fetch(&first->finished, 1, __ATOMIC_ACQ_REL) < task->segments) return;
    first->finished = 0; /* for the next layer */
    struct sums all = sums_at(&a->layout, partials, rows);
    for (int segment = 1; segment < task->segments; segment++) {
        sums = sums_at(&a->layout, partials + segment * apart, rows);
        for (int r = 0; r < rows; r++) fold(&a->layout, &all, &sums, r);
    }
    write_result(a, task, &all, rows);
}

static void attention_task(void *argument, int number, int thread) {
    const struct attention *a = argument;
    const struct attention_task *task = &a->tasks[number];
    const struct layout *l = &a->layout;
    struct attention_scratch s;
    lay_out_scratch(l, a->scratch + thread * a->scratch_bytes, &s);
    int share = l->heads / l->kv_heads, rows = task->tokens * share;
    int64_t start = a->rows[task->row].start + task->token, length = keys_of(a, task);
    load_queries(a, &s, task, rows);
    if (task->segments > 1) {
        attend_shared(a, &s, number, rows, length);
    } else {
        struct sums all = sums_at(l, s.all, rows), part = sums_at(l, s.part, rows);
        attend(a, &s, task, &all, rows, 0, (int)MIN(SEGMENT, length), start + 1);
        for (int64_t from = SEGMENT; from < length; from += SEGMENT) {
            attend(a, &s, task, &part, rows, from, (int)MIN(SEGMENT, length - from), start + 1 - from);
            for (int r = 0; r < rows; r++) /* a token that sees nothing of it has no sums of it */
                if (start + r / share >= from) fold(l, &all, &part, r);
        }
        write_result(a, task, &all, rows);
    }
    if (a->pairs) tiles_release();
}

/* Into how many tasks the keys of one KV head of a row are cut. Only where there is one token are sums to be kept few.
 * Requests that share blocks share no tasks, so there may be more than a pool takes, however small the cache is. */
INLINE int segments_of(const struct row *row, int is_cut) {
    if (!is_cut || row->count > 1) return 1;
    return (int)((row->start + row->count + SEGMENT - 1) / SEGMENT);
}

/* Returns how many tasks there are; writes them unless `tasks` is NULL. The longest first. */
static int attention_tasks(const struct layout *l, const struct row *rows, int num_rows, int is_cut,
                           struct attention_task *tasks) {
    int count = 0, step = query_tokens(l);
    for (int row = 0; row < num_rows; row++) {
        int segments = segments_of(&rows[row], is_cut);
        for (int64_t end = rows[row].count; end > 0; end -= step)
            for (int part = 0; part < l->kv_heads * segments; part++, count++)
                if (tasks != NULL) {
                    int begin = (int)MAX(0, end - step);
                    tasks[count] = (struct attention_task){row,       part / segments, begin, (int)end - begin,
                                                           part % segments, segments,  0};
                }
    }
    return count;
}
