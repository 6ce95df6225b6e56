/* What one model holds between steps, what a step is given, and the scratch memory that steps share. The first and the
 * last struct are those of bindings.py, field by field. */
#pragma once
#include "attention.h"
#include "later.h"
#include "memory.h"
#include "packing.h"
#include "product.h"

struct sizes {
    int32_t vocab, hidden, inner, layers, heads, kv_heads, dim, block_size, threads;
    int32_t weights_are_bfloat16, cache_is_bfloat16, pairs; /* pairs: multiply in bfloat16 where the CPU can */
    int32_t bits; /* of coded weights: 8, 4, or 0 for weights as they are */
    float epsilon;
};

struct layer {
    struct matrix qkv, o, gate_up, down;
    const float *input_norm, *post_norm, *q_norm, *k_norm, *qkv_bias, *o_bias;
};

struct model {
    struct sizes sizes;
    struct layout layout;
    enum kind rows_kind; /* of activations that are multiplied */
    struct layer *layers;
    struct matrix head;
    struct slabs weights;
    const void *embedding; /* (vocab, hidden) as the weights are; NULL: taken from the head's panels */
    const float *final_norm;
    const float *rope; /* (positions, dim / 2) cosine and sine */
    struct pool pool;
    char *memory;
    size_t memory_bytes;
    float *x, *qkv; /* residual stream; q, k and v */
    void *normed, *attended, *gated;
    uint32_t *whole; /* rows as whole numbers, for coded weights */
    char *attention_scratch;
    struct attention_task *tasks;
    float *partials;
    struct best *best;
    struct later later;
};

struct batch {
    int32_t tokens, rows, kept_tokens, kept_rows;
    const int64_t *ids, *blocks;
    const int64_t *positions;
    const struct row *row;
    const struct row *kept;     /* the last tokens of some rows: those whose hidden states are wanted */
    void *keys, *values;        /* (layers, blocks, kv_heads, block_size, dim) */
    int64_t layer_stride;       /* numbers between two layers of the cache */
    int64_t upcoming, num_upcoming; /* blocks that a later step writes first */
    float *hidden;              /* (kept_tokens, hidden) */
};

INLINE int most_inputs(const struct sizes *s) { return MAX(s->hidden, MAX(s->inner, s->heads * s->dim)); }

/* Of one thread: attention's, or panels that are widened. */
static size_t scratch_bytes(const struct model *m) {
    struct attention_scratch unused;
    const struct sizes *s = &m->sizes;
    size_t inputs = MAX(2 * s->hidden, MAX(s->inner, s->heads * s->dim));
    size_t widened = MAX(GROUP_BYTES, (inputs * PANEL * 4 + 63) / 64 * 64);
    return MAX(lay_out_scratch(&m->layout, NULL, &unused), widened);
}

/* Scratch for a step of so many tokens, rows and attention tasks; grows, never shrinks. -1: no memory. */
static int reserve(struct model *m, int tokens, int rows, int tasks) {
    const struct sizes *s = &m->sizes;
    struct attention_scratch unused;
    size_t scratch = scratch_bytes(m), used = 0;
    size_t sizes[] = {
        (size_t)tokens * s->hidden * 4,
        (size_t)tokens * (s->heads + 2 * s->kv_heads) * s->dim * 4,
        (size_t)MAX(tokens, rows) * s->hidden * 4,
        (size_t)tokens * s->heads * s->dim * 4,
        (size_t)tokens * s->inner * 4,
        scratch * m->pool.threads,
        (size_t)tasks * sizeof *m->tasks,
        (size_t)tasks * partial_numbers(&m->layout) * 4,
        (size_t)rows * m->pool.threads * sizeof *m->best,
        s->bits == 0 ? 0 : (size_t)MAX(tokens, rows) * whole_row_units(most_inputs(s)) * 4,
    };
    void **places[] = {(void **)&m->x,  (void **)&m->qkv,  &m->normed, &m->attended,
                       &m->gated,       (void **)&m->attention_scratch, (void **)&m->tasks, (void **)&m->partials,
                       (void **)&m->best, (void **)&m->whole};
    for (int i = 0; i < 10; i++) used += (sizes[i] + 127) / 64 * 64;
    if (used > m->memory_bytes) {
        free(m->memory);
        m->memory_bytes = 0;
        m->memory = big_memory(used);
        if (m->memory == NULL) return -1;
        m->memory_bytes = used;
        memset(m->memory, 0, used);
    }
    char *at = m->memory;
    for (int i = 0; i < 10; i++) {
        *places[i] = at;
        at += (sizes[i] + 127) / 64 * 64;
    }
    /* Scratch holds zeros that are only read; what lay there before was something else. */
    for (int t = 0; t < m->pool.threads; t++) {
        lay_out_scratch(&m->layout, m->attention_scratch + t * scratch, &unused);
        memset(unused.nothing, 0, s->dim * 4);
        memset(unused.values, 0, (size_t)CHUNK * padded_dim(s->dim) * 4);
    }
    return 0;
}
