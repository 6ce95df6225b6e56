/* A decoder of the Llama family, one step a call. The only file that is compiled; all symbols that begin with `ek_` are
 * called through ctypes (bindings.py), which holds the same structs.
 *
 * Enters: packed tokens, their rows, block table, the KV cache. Leaves: hidden states after the last norm, K and V
 * written. Owns the packed weights, scratch memory and threads of one model; dies in ek_free. One call at a time for a
 * model. Nothing is checked here beyond memory: the caller has. Returns 0, or -1 when there was no memory; ek_step also
 * -2 when there were more tasks than a pool takes. */
#include "attention.h"
#include "limits.h"
#include "matmul.h"
#include "packing.h"
#include "pieces.h"
#include "pool.h"
#include "populate.h"
#include "product.h"
#include "sampling.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int ek_width(void) { return W; }
EXPORT int ek_has_pairs(void) { return HAS_PAIRS; }
EXPORT const char *ek_description(void) {
    if (HAS_TILES && tiles_allowed()) return "AMX with bfloat16";
    return HAS_PAIRS ? "AVX-512 with bfloat16" : W == 16 ? "AVX-512" : W == 8 ? "AVX2" : "128-bit vectors";
}

EXPORT struct model *ek_new(const struct sizes *sizes) {
    struct model *m = NULL;
    if (posix_memalign((void **)&m, 64, sizeof *m) != 0) return NULL;
    memset(m, 0, sizeof *m);
    m->sizes = *sizes;
    m->layers = calloc(sizes->layers, sizeof *m->layers);
    if (m->layers == NULL) {
        free(m);
        return NULL;
    }
    m->layout = (struct layout){sizes->heads, sizes->kv_heads, sizes->dim, sizes->block_size,
                                sizes->cache_is_bfloat16 ? BFLOAT16 : FLOAT32, 1.0f / sqrtf((float)sizes->dim)};
    enum kind halves = sizes->pairs && HAS_PAIRS ? PAIRS : BFLOAT16;
    m->rows_kind = sizes->bits ? INT8 : sizes->weights_are_bfloat16 ? halves : FLOAT32;
    pool_start(&m->pool, sizes->threads);
    return m;
}

EXPORT void ek_free(struct model *m) {
    pool_stop(&m->pool);
    slabs_free(&m->weights);
    free(m->layers);
    free(m->memory);
    free(m);
}

EXPORT int ek_threads(struct model *m) { return m->pool.threads; }

/* ---- weights */

enum { QKV, O, GATE, UP, DOWN, HEAD };
enum { INPUT_NORM, POST_NORM, Q_NORM, K_NORM, QKV_BIAS, O_BIAS, FINAL_NORM, ROPE, EMBEDDING };

/* Which matrix, which rows and panels of it are meant, and its shape; gate and up share one, in turns. Returns in how
 * many parts it comes. */
static int find_matrix(struct model *m, int layer, int name, struct packing *p, int *outputs, int *inputs) {
    const struct sizes *s = &m->sizes;
    struct layer *l = &m->layers[layer];
    int q = s->heads * s->dim;
    struct matrix *matrices[] = {&l->qkv, &l->o, &l->gate_up, &l->gate_up, &l->down, &m->head};
    int rows[] = {q + 2 * s->kv_heads * s->dim, s->hidden, s->inner, s->inner, s->hidden, s->vocab};
    int parts = name == GATE || name == UP ? 2 : 1;
    p->matrix = matrices[name];
    p->rows = rows[name];
    p->first = name == UP;
    p->step = parts;
    *outputs = parts * p->rows;
    *inputs = name == O ? q : name == DOWN ? s->inner : s->hidden;
    return parts;
}

static void pack_panels(struct model *m, task_fn run, void *packing, int rows, int threads) {
    int panels = (rows + PANEL - 1) / PANEL;
    if (threads > 1) pool_run(&m->pool, run, packing, panels);
    else for (int panel = 0; panel < panels; panel++) run(packing, panel, 0);
}

/* `from` (rows, inputs) of the named matrix, read only during the call. */
EXPORT int ek_set_matrix(struct model *m, int layer, int name, const void *from, int is_bfloat16, int threads) {
    struct packing p = {.from = from, .is_bfloat16 = is_bfloat16};
    int outputs, inputs, parts = find_matrix(m, layer, name, &p, &outputs, &inputs);
    enum kind kind = m->sizes.weights_are_bfloat16 ? BFLOAT16 : FLOAT32;
    if (shape_matrix(&m->weights, p.matrix, outputs, inputs, kind, parts) != 0) return -1;
    pack_panels(m, pack_task, &p, p.rows, threads);
    return 0;
}

/* The named matrix as codes (packing.h), read only during the call. The head is always of 8 bits. */
EXPORT int ek_set_codes(struct model *m, int layer, int name, const uint8_t *codes, const float *scales,
                        const float *lows, int threads) {
    struct packing place = {0};
    int outputs, inputs, parts = find_matrix(m, layer, name, &place, &outputs, &inputs);
    enum kind kind = m->sizes.bits == 8 || name == HEAD ? INT8 : INT4;
    if (shape_matrix(&m->weights, place.matrix, outputs, inputs, kind, parts) != 0) return -1;
    struct code_packing p = {place.matrix, codes, scales, lows, place.rows, place.first, place.step};
    pack_panels(m, pack_code_task, &p, p.rows, threads);
    return 0;
}

/* Kept by the caller as long as the model lives. Float32, but for the embedding. */
EXPORT void ek_set_vector(struct model *m, int layer, int name, const void *from) {
    struct layer *l = &m->layers[layer];
    const void **places[] = {(const void **)&l->input_norm, (const void **)&l->post_norm, (const void **)&l->q_norm,
                             (const void **)&l->k_norm,     (const void **)&l->qkv_bias,  (const void **)&l->o_bias,
                             (const void **)&m->final_norm, (const void **)&m->rope,      &m->embedding};
    *places[name] = from;
}

/* ---- one step */

struct token_job { /* what is done token by token: a range of tokens is a task */
    struct model *model;
    const struct batch *batch;
    const struct layer *layer;
    const float *from, *weight;
    void *to;
    enum kind to_kind;
    int layer_number, tokens, per_task, inputs;
};

static void embed_token(const struct model *m, int64_t id, float *x) {
    int hidden = m->sizes.hidden;
    if (m->embedding == NULL) {
        unpack_row(&m->head, id, x);
    } else if (m->sizes.weights_are_bfloat16) {
        const uint16_t *from = (const uint16_t *)m->embedding + id * hidden;
        for (int i = 0; i < hidden; i++) x[i] = widen_one(from[i]);
    } else {
        memcpy(x, (const float *)m->embedding + id * hidden, hidden * 4);
    }
}

static void embed_task(void *argument, int task, int thread) {
    const struct token_job *job = argument;
    (void)thread;
    for (int t = task * job->per_task; t < MIN(job->tokens, (task + 1) * job->per_task); t++)
        embed_token(job->model, job->batch->ids[t], job->model->x + (size_t)t * job->model->sizes.hidden);
}

static void norm_task(void *argument, int task, int thread) {
    const struct token_job *job = argument;
    (void)thread;
    int hidden = job->model->sizes.hidden, bytes = job->to_kind == PAIRS ? 2 : 4;
    for (int t = task * job->per_task; t < MIN(job->tokens, (task + 1) * job->per_task); t++)
        rms_norm(job->from + (size_t)t * hidden, job->weight, hidden, job->model->sizes.epsilon,
                 (char *)job->to + (size_t)t * hidden * bytes, job->to_kind == PAIRS);
}

/* Norms of q and k, rope, and K and V into the cache. */
static void place_task(void *argument, int task, int thread) {
    const struct token_job *job = argument;
    (void)thread;
    struct model *m = job->model;
    const struct batch *b = job->batch;
    const struct layout *l = &m->layout;
    int dim = l->dim, heads = l->heads + l->kv_heads, bytes = l->kind == FLOAT32 ? 4 : 2;
    int row = 0;
    for (int t = task * job->per_task; t < MIN(job->tokens, (task + 1) * job->per_task); t++) {
        while (b->row[row].first + b->row[row].count <= t) row++;
        float *qkv = m->qkv + (size_t)t * (heads + l->kv_heads) * dim;
        const float *rope = m->rope + b->positions[t] * dim;
        for (int h = 0; h < heads; h++) {
            const float *norm = h < l->heads ? job->layer->q_norm : job->layer->k_norm;
            if (norm != NULL) rms_norm(qkv + h * dim, norm, dim, m->sizes.epsilon, qkv + h * dim, 0);
            rotate(qkv + h * dim, rope, dim);
        }
        int64_t block = b->blocks[b->row[row].table + b->positions[t] / l->block_size];
        for (int h = 0; h < l->kv_heads; h++) {
            size_t place = ((size_t)(block * l->kv_heads + h) * l->block_size + b->positions[t] % l->block_size) * dim +
                           (size_t)job->layer_number * b->layer_stride;
            write_numbers((char *)b->keys + place * bytes, qkv + (l->heads + h) * dim, dim, bytes == 2);
            write_numbers((char *)b->values + place * bytes, qkv + (heads + h) * dim, dim, bytes == 2);
        }
    }
}

#define NUMBERS_PER_TASK 4096 /* less is done sooner than another thread has come */

static void each_token(struct token_job *job, task_fn run, int numbers) {
    job->per_task = MAX(1, NUMBERS_PER_TASK / numbers);
    pool_run(&job->model->pool, run, job, (job->tokens + job->per_task - 1) / job->per_task);
}

static void normalise(struct model *m, const float *from, const float *weight, int tokens, void *to, enum kind kind) {
    struct token_job job = {.model = m, .from = from, .weight = weight, .to = to, .to_kind = kind, .tokens = tokens};
    each_token(&job, norm_task, m->sizes.hidden);
}

static void whole_task(void *argument, int task, int thread) {
    const struct token_job *job = argument;
    (void)thread;
    int inputs = job->inputs, units = whole_row_units(inputs);
    for (int t = task * job->per_task; t < MIN(job->tokens, (task + 1) * job->per_task); t++)
        write_whole_row(job->from + (size_t)t * inputs, inputs, (uint32_t *)job->to + (size_t)t * units);
}

/* For coded weights `a` is brought into their form first: it must be complete. */
static struct product product_of(struct model *m, const struct matrix *matrix, const void *a, int rows,
                                 enum finish finish, void *out, size_t ldo) {
    size_t units = m->rows_kind == PAIRS ? matrix->inputs / 2 : matrix->inputs;
    if (is_whole(matrix->kind)) {
        struct token_job job = {.model = m, .from = a, .to = m->whole, .tokens = rows, .inputs = matrix->inputs};
        each_token(&job, whole_task, matrix->inputs);
        a = m->whole;
        units = whole_row_units(matrix->inputs);
    }
    return (struct product){.matrix = matrix, .kind = is_whole(matrix->kind) ? matrix->kind : m->rows_kind, .a = a,
                            .lda = units, .rows = rows, .finish = finish, .out = out, .ldo = ldo,
                            .scratch = m->attention_scratch, .scratch_bytes = scratch_bytes(m), .later = &m->later};
}

/* Q, K and V of all tokens, the latter two into the cache. */
static void project(struct model *m, const struct batch *b, int number) {
    const struct sizes *s = &m->sizes;
    const struct layer *l = &m->layers[number];
    int tokens = b->tokens, qkv = (s->heads + 2 * s->kv_heads) * s->dim;
    normalise(m, m->x, l->input_norm, tokens, m->normed, m->rows_kind);
    struct product p = product_of(m, &l->qkv, m->normed, tokens, STORE, m->qkv, qkv);
    p.bias = l->qkv_bias;
    multiply(&m->pool, &p);
    struct token_job place = {.model = m, .batch = b, .layer = l, .layer_number = number, .tokens = tokens};
    each_token(&place, place_task, qkv);
}

static void attend_to_cache(struct model *m, const struct batch *b, struct attention *attention, int number) {
    size_t stride = (size_t)b->layer_stride * bytes_of(&m->layout);
    attention->keys = (char *)b->keys + number * stride;
    attention->values = (char *)b->values + number * stride;
    pool_run(&m->pool, attention_task, attention, attention->num_tasks);
    if (number + 1 == m->sizes.layers) m->later.count = 0;
    ask_later(&m->later, (char *)attention->keys + stride, m->pool.threads);
}

/* What follows attention, of the first `tokens` of x and of what they attended to. */
static void transform(struct model *m, int number, int tokens) {
    const struct sizes *s = &m->sizes;
    const struct layer *l = &m->layers[number];
    struct product p = product_of(m, &l->o, m->attended, tokens, ADD, m->x, s->hidden);
    p.bias = l->o_bias;
    multiply(&m->pool, &p);
    normalise(m, m->x, l->post_norm, tokens, m->normed, m->rows_kind);
    p = product_of(m, &l->gate_up, m->normed, tokens, GATED, m->gated, s->inner);
    multiply(&m->pool, &p);
    p = product_of(m, &l->down, m->gated, tokens, ADD, m->x, s->hidden);
    multiply(&m->pool, &p);
}

/* Of any layer: the last one has other tasks than those before it. */
static int most_attention_tasks(const struct model *m, const struct batch *b, int is_cut) {
    int all = attention_tasks(&m->layout, b->row, b->rows, is_cut, NULL);
    return MAX(all, attention_tasks(&m->layout, b->kept, b->kept_rows, is_cut, NULL));
}

/* The kept tokens' x and what they attended to come first, in their order. */
static void gather_kept(struct model *m, const struct batch *b) {
    size_t x = (size_t)m->sizes.hidden * 4;
    size_t attended = (size_t)m->sizes.heads * m->sizes.dim * (m->rows_kind == PAIRS ? 2 : 4), to = 0;
    if (b->kept_tokens == b->tokens) return;
    for (int row = 0; row < b->kept_rows; row++)
        for (int64_t t = b->kept[row].first; t < b->kept[row].first + b->kept[row].count; t++, to++) {
            memmove((char *)m->x + to * x, (char *)m->x + t * x, x);
            memmove((char *)m->attended + to * attended, (char *)m->attended + t * attended, attended);
        }
}

/* Of the last layer only K and V outlive the step, but for the tokens whose hidden states are wanted. */
static void run_last_layer(struct model *m, const struct batch *b, struct attention *attention, int is_cut) {
    int number = m->sizes.layers - 1;
    project(m, b, number);
    attention->rows = b->kept;
    attention->num_tasks = attention_tasks(&m->layout, b->kept, b->kept_rows, is_cut, m->tasks);
    attend_to_cache(m, b, attention, number);
    gather_kept(m, b);
    transform(m, number, b->kept_tokens);
}

EXPORT int ek_step(struct model *m, const struct batch *b) {
    int is_cut = m->pool.threads > 1, tasks = most_attention_tasks(m, b, is_cut);
    if (is_cut && tasks > MOST_TASKS) {
        is_cut = 0;
        tasks = most_attention_tasks(m, b, is_cut);
        if (tasks > MOST_TASKS) return -2;
    }
    if (reserve(m, b->tokens, b->rows, tasks) != 0) return -1;
    struct attention attention = {
        .layout = m->layout, .rows = b->row, .blocks = b->blocks, .qkv = m->qkv, .out = m->attended,
        .pairs = m->rows_kind == PAIRS, .tasks = m->tasks, .threads = m->pool.threads, .partials = m->partials,
        .scratch = m->attention_scratch, .scratch_bytes = scratch_bytes(m)};
    populate_upcoming(m, b);
    find_runs(&m->later, &m->layout, b->tokens, b->row, b->rows, b->blocks, (char *)b->values - (char *)b->keys);
    ask_later(&m->later, b->keys, m->pool.threads);
    struct token_job embed = {.model = m, .batch = b, .tokens = b->tokens};
    each_token(&embed, embed_task, m->sizes.hidden * 8);
    attention.num_tasks = attention_tasks(&m->layout, b->row, b->rows, is_cut, m->tasks);
    for (int layer = 0; layer < m->sizes.layers - 1; layer++) {
        project(m, b, layer);
        attend_to_cache(m, b, &attention, layer);
        transform(m, layer, b->tokens);
    }
    run_last_layer(m, b, &attention, is_cut);
    normalise(m, m->x, m->final_norm, b->kept_tokens, b->hidden, FLOAT32);
    return 0;
}

/* ---- the head */

static int head_rows(struct model *m, const float *hidden, int rows, struct product *p) {
    if (reserve(m, 1, rows, 1) != 0) return -1;
    *p = product_of(m, &m->head, hidden, rows, STORE, NULL, m->sizes.vocab);
    if (m->rows_kind == PAIRS) {
        int size = m->sizes.hidden; /* row by row: where a number stands in its row decides how it is rounded */
        for (int r = 0; r < rows; r++)
            write_numbers((uint16_t *)m->normed + (size_t)r * size, hidden + (size_t)r * size, size, 1);
        p->a = m->normed;
    }
    return 0;
}

/* hidden (rows, hidden) -> logits (rows, vocab) */
EXPORT int ek_logits(struct model *m, const float *hidden, int rows, float *logits) {
    struct product p;
    if (head_rows(m, hidden, rows, &p) != 0) return -1;
    p.out = logits;
    multiply(&m->pool, &p);
    return 0;
}

/* hidden (rows, hidden) -> the best token of each row and its logit, NaN when any logit is. */
EXPORT int ek_greedy(struct model *m, const float *hidden, int rows, int64_t *ids, float *values) {
    struct product p;
    if (head_rows(m, hidden, rows, &p) != 0) return -1;
    p.finish = BEST;
    p.best = m->best;
    for (int i = 0; i < rows * m->pool.threads; i++) m->best[i] = (struct best){-INFINITY, -1};
    multiply(&m->pool, &p);
    for (int r = 0; r < rows; r++) {
        struct best best = m->best[r];
        for (int t = 1; t < m->pool.threads; t++) {
            struct best other = m->best[(size_t)t * rows + r];
            int is_better = other.value > best.value || (other.value == best.value && other.index < best.index);
            if (best.value == best.value && (is_better || other.value != other.value)) best = other;
        }
        ids[r] = MAX(0, best.index);
        values[r] = best.value;
    }
    return 0;
}

/* Rows `places` of numbers (any, vocab), which are changed -> ids (rows), -1 where there is nothing to draw from. They
 * are logits, or without temperatures weights (sampling.h). */
EXPORT void ek_draw(struct model *m, float *numbers, const int64_t *places, int rows, float unit,
                    const float *temperatures, const float *least, const int64_t *limits, const double *shares,
                    const double *uniform, int64_t *ids) {
    struct drawing drawing = {numbers, m->sizes.vocab, places, temperatures, least, unit, limits, shares, uniform, ids};
    pool_run(&m->pool, draw_task, &drawing, rows);
}

/* ---- for benchmarks */

/* Reads `bytes`, a multiple of 256 KiB, once, on all threads. */
EXPORT float ek_read(struct model *m, const float *from, int64_t bytes) {
    struct reading reading = {from, (size_t)bytes, {0}};
    pool_run(&m->pool, read_task, &reading, (int)(bytes / READ_BLOCK));
    return reading.sums[0];
}

/* Returns how many multiply-adds of single numbers were done, on all threads, in the kind that rows have. */
EXPORT double ek_multiply_adds(struct model *m, int tasks) {
    struct chains chains = {.pairs = m->rows_kind == PAIRS};
    pool_run(&m->pool, chain_task, &chains, tasks);
    return chains.sums[0] < 0 ? 0 : (double)tasks * CHAINS * CHAIN_STEPS * W * (chains.pairs ? 2 : 1);
}

/* a (rows, inputs) float32 times one matrix of one layer -> out (rows, outputs). Gate and up are one, by GATE. */
EXPORT int ek_product(struct model *m, int layer, int name, const float *a, int rows, float *out) {
    struct layer *l = &m->layers[layer];
    struct matrix *matrices[] = {&l->qkv, &l->o, &l->gate_up, &l->gate_up, &l->down, &m->head};
    const struct matrix *matrix = matrices[name];
    if (reserve(m, rows, rows, 1) != 0) return -1;
    struct product p = product_of(m, matrix, a, rows, STORE, out, matrix->outputs);
    if (m->rows_kind == PAIRS) {
        void *to = name == DOWN ? m->gated : name == O ? m->attended : m->normed;
        write_numbers(to, a, rows * matrix->inputs, 1);
        p.a = to;
    }
    multiply(&m->pool, &p);
    return 0;
}
