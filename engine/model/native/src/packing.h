/* A matrix as it is in files becomes panels: memory for it, and the order of its numbers. */
#pragma once
#include <sys/mman.h>

#include "matmul.h"

static void *big_memory(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, bytes >= (2u << 20) ? 2u << 20 : 64, MAX(bytes, 64)) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= (2u << 20)) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

struct packing {
    struct matrix *matrix;
    const void *from;
    int is_bfloat16, rows, first, step; /* panel p of the source becomes panel first + p * step */
};

static void pack_task(void *argument, int panel, int thread) {
    const struct packing *p = argument;
    (void)thread;
    struct matrix *m = p->matrix;
    int units = m->kind == FLOAT32 ? m->inputs : m->inputs / 2;
    uint32_t *to = m->data + (size_t)(p->first + panel * p->step) * m->panel;
    int as_it_is = m->kind == FLOAT32 || p->is_bfloat16, i = 0;
    for (; as_it_is && i < PANEL && panel * PANEL + i + W <= p->rows; i += W) {
        const uint32_t *rows[W];
        for (int j = 0; j < W; j++) rows[j] = (const uint32_t *)p->from + (size_t)(panel * PANEL + i + j) * units;
        transpose_rows(rows, units, to + i, PANEL);
    }
    for (; i < PANEL; i++) {
        int row = panel * PANEL + i;
        size_t at = (size_t)row * m->inputs;
        for (int u = 0; u < units; u++) {
            uint32_t unit = 0;
            if (row >= p->rows) unit = 0;
            else if (m->kind == FLOAT32) unit = ((const uint32_t *)p->from)[at + u];
            else if (p->is_bfloat16) unit = ((const uint32_t *)p->from)[at / 2 + u];
            else {
                const float *pair = (const float *)p->from + at + 2 * u;
                unit = narrow_one(pair[0]) | (uint32_t)narrow_one(pair[1]) << 16;
            }
            to[(size_t)u * PANEL + i] = unit;
        }
    }
}

static int shape_matrix(struct matrix *matrix, int outputs, int inputs, enum kind kind, int parts) {
    if (matrix->data != NULL) return 0;
    int panels = (outputs / parts + PANEL - 1) / PANEL * parts;
    *matrix = (struct matrix){parts == 2 ? panels * PANEL : outputs, inputs, panels, kind, 0, NULL};
    matrix->panel = (size_t)(kind == FLOAT32 ? inputs : inputs / 2) * PANEL;
    matrix->data = big_memory(panels * matrix->panel * 4);
    return matrix->data == NULL ? -1 : 0;
}
