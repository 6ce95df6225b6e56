/* A matrix as it is in files becomes panels: memory for it, and the order of its numbers. */
#pragma once
#include "matmul.h"
#include "memory.h"

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

/* codes (rows, padded inputs)   scales, lows (rows, groups): of quantise.py */
struct code_packing {
    struct matrix *matrix;
    const uint8_t *codes;
    const float *scales, *lows;
    int rows, first, step;
};

static void pack_code_task(void *argument, int panel, int thread) {
    const struct code_packing *p = argument;
    (void)thread;
    struct matrix *m = p->matrix;
    int bits = bits_of(m->kind), group = group_of(bits), padded = padded_inputs(m->inputs), groups = padded / group;
    uint32_t *to = m->data + (size_t)(p->first + panel * p->step) * m->panel;
    int per_unit = pairs_of_unit(bits), units = group_units(bits, PANEL), added = bits == 8 ? ADDED : 0;
    memset(to, 0, m->panel * 4);
    for (int g = 0; g < groups; g++, to += units) {
        for (int i = 0; i < PANEL && panel * PANEL + i < p->rows; i++) {
            size_t row = (size_t)panel * PANEL + i;
            const uint8_t *from = p->codes + row * padded + g * group;
            float scale = p->scales[row * groups + g];
            if (bits == 8) memcpy(to + i, &scale, 4);
            else to[i] = narrow_one(scale) | (uint32_t)narrow_one(p->lows[row * groups + g]) << 16;
            for (int unit = 1; unit * PANEL < units; unit++) {
                uint32_t codes = 0;
                for (int pair = 0; pair < per_unit; pair++, from += 2) {
                    codes |= (uint32_t)(uint8_t)(from[0] + added) << bits * pair;
                    codes |= (uint32_t)(uint8_t)(from[1] + added) << (16 + bits * pair);
                }
                to[unit * PANEL + i] = codes;
            }
        }
    }
}

static int shape_matrix(struct slabs *slabs, struct matrix *matrix, int outputs, int inputs, enum kind kind,
                        int parts) {
    if (matrix->data != NULL) return 0;
    int panels = (outputs / parts + PANEL - 1) / PANEL * parts;
    *matrix = (struct matrix){parts == 2 ? panels * PANEL : outputs, inputs, panels, kind, 0, NULL};
    if (is_whole(kind))
        matrix->panel = (size_t)padded_inputs(inputs) / group_of(bits_of(kind)) * group_units(bits_of(kind), PANEL);
    else
        matrix->panel = (size_t)(kind == FLOAT32 ? inputs : inputs / 2) * PANEL;
    matrix->data = slabs_take(slabs, panels * matrix->panel * 4);
    return matrix->data == NULL ? -1 : 0;
}
