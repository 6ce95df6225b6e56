/* A product cut into tasks, each some panels of the matrix for some rows, and what is done with it while it is in the
 * first cache: put somewhere, added, brought through the gate, or searched for the best. */
#pragma once
#include "later.h"
#include "matmul.h"
#include "pool.h"

enum finish { STORE, ADD, GATED, BEST };

struct best { /* of one row */
    float value;
    int index; /* -1: no number was found, or one that is none */
};

struct product {
    const struct matrix *matrix;
    enum kind kind;
    const uint32_t *a;
    size_t lda;
    int rows;
    enum finish finish;
    float *out; /* STORE, ADD: (rows, outputs). GATED: (rows, ldo) in the rows' own format */
    size_t ldo; /* numbers from row to row */
    const float *bias;
    struct best *best; /* BEST: (threads, rows) */
    char *scratch; /* per thread: panels widened, GROUP_BYTES or one task's fewest */
    size_t scratch_bytes;
    struct later *later; /* asked for meanwhile, or NULL */
    int blocks, group, row_tasks, is_widened; /* the plan: blocks of rows, panels of a task, ranges of blocks */
    int threads; /* that share out the tasks */
};

/* ---- finishes: tile (rows, width) of outputs from `first` on */

static void finish_store(const struct product *p, const float *tile, size_t ldt, int row, int rows, int first,
                         int width) {
    int real = MIN(width, p->matrix->outputs - first);
    for (int r = 0; r < rows; r++) {
        const float *from = tile + r * ldt;
        float *to = p->out + (size_t)(row + r) * p->ldo + first;
        int i = 0;
        for (; i + W <= real; i += W) {
            vf sum = load_f(from + i);
            if (p->finish == ADD) sum += load_f(to + i);
            store_f(to + i, p->bias == NULL ? sum : sum + load_f(p->bias + first + i));
        }
        for (; i < real; i++) {
            float sum = p->finish == ADD ? to[i] + from[i] : from[i];
            to[i] = p->bias == NULL ? sum : sum + p->bias[first + i];
        }
    }
}

/* Panels of gate and up take turns: silu(gate) * up. */
static void finish_gate(const struct product *p, const float *tile, size_t ldt, int row, int rows, int first,
                        int width) {
    int outputs = (int)p->ldo;
    for (int r = 0; r < rows; r++)
        for (int panel = 0; panel < width / PANEL; panel += 2) {
            const float *gate = tile + r * ldt + panel * PANEL;
            int at = first / 2 + panel / 2 * PANEL, real = MIN(PANEL, outputs - at);
            size_t place = (row + r) * p->ldo + at;
            float result[PANEL], *to = real == PANEL && p->kind != PAIRS ? p->out + place : result;
            uint16_t narrowed[PANEL], *half = real == PANEL ? (uint16_t *)p->out + place : narrowed;
            for (int i = 0; i < PANEL; i += W) {
                vf g = load_f(gate + i), gated = g / (1.0f + exp_v(-g)) * load_f(gate + PANEL + i);
                if (p->kind == PAIRS) narrow(half + i, gated);
                else store_f(to + i, gated);
            }
            if (real == PANEL || real <= 0) continue;
            if (p->kind == PAIRS) memcpy((uint16_t *)p->out + place, narrowed, real * 2);
            else memcpy(p->out + place, result, real * 4);
        }
}

/* Whether any of them is as much as `least`, or a NaN. */
INLINE int has_candidate(const float *from, int count, float least) {
    vf top = all_f(-INFINITY);
    vi is_nan = {0};
    int i = 0;
    for (; i + W <= count; i += W) {
        vf x = load_f(from + i);
        top = larger(x, top);
        is_nan |= x != x;
    }
    if (lanes_of((top >= least) | is_nan)) return 1;
    for (; i < count; i++)
        if (!(from[i] < least)) return 1;
    return 0;
}

static void finish_best(const struct product *p, const float *tile, size_t ldt, int row, int rows, int first, int width,
                        int thread) {
    int real = MIN(width, p->matrix->outputs - first);
    for (int r = 0; r < rows; r++) {
        const float *from = tile + r * ldt;
        struct best *best = &p->best[(size_t)thread * p->rows + row + r];
        float top = -INFINITY;
        int is_nan = 0;
        if (!has_candidate(from, real, best->value)) continue;
        for (int i = 0; i < real; i++) {
            top = from[i] > top ? from[i] : top;
            is_nan |= from[i] != from[i];
        }
        if (is_nan) {
            *best = (struct best){NAN, first};
        } else if (top > best->value || (top == best->value && first < best->index)) {
            int i = 0;
            while (from[i] != top) i++;
            *best = (struct best){top, first + i};
        }
    }
}

static void finish(const struct product *p, const float *tile, size_t width, int row, int rows, int panel, int thread) {
    if (p->finish == GATED) finish_gate(p, tile, width, row, rows, panel * PANEL, (int)width);
    else if (p->finish == BEST) finish_best(p, tile, width, row, rows, panel * PANEL, (int)width, thread);
    else finish_store(p, tile, width, row, rows, panel * PANEL, (int)width);
}

/* Where a block of rows begins: all are as even as may be, and the first, which may have more to do for each number of
 * the matrix, is among the largest. */
INLINE int block_start(int rows, int block, int blocks) {
    return (int)(((int64_t)rows * block + blocks - 1) / blocks);
}
INLINE int blocks_of(int rows, int most) { return (rows + most - 1) / most; }

struct part { /* of a product: a task */
    int panel0, panel1, block0, block1;
};

#define WIDEN_FROM 5 /* blocks of rows: then widening a panel once is cheaper than for each block */

struct target { /* of a tile */
    float *to;
    size_t ldo;
    int is_added, is_done; /* done: nothing is left to finish */
};

/* A tile that only has to be put somewhere is put there at once, any other into `result`. */
INLINE struct target target_of(const struct product *p, int row, int rows, int panel, int panels,
                               float *result) {
    int is_plain = (p->finish == STORE || p->finish == ADD) && p->bias == NULL;
    int is_possible = rows >= ONE_PANEL_FROM && uses_vectors(p->kind, steps_of(p->matrix));
    if (!is_plain || !is_possible || (panel + panels) * PANEL > p->matrix->outputs)
        return (struct target){result, (size_t)panels * PANEL, 0, 0};
    return (struct target){p->out + (size_t)row * p->ldo + panel * PANEL, p->ldo, p->finish == ADD, 1};
}

/* The same products in the same order; the first block of rows leaves the bfloat16 panels as float32 to the others. */
static void widened_rows(const struct product *p, const struct part *part, int thread) {
    const struct matrix *m = p->matrix;
    float *wide = (float *)(p->scratch + thread * p->scratch_bytes);
    int unit = p->finish == GATED ? 2 : 1;
    size_t panel_size = (size_t)m->inputs * PANEL, width = unit * PANEL;
    _Alignas(64) float result[MAX_ROWS * 2 * PANEL];
    for (int block = part->block0; block < part->block1; block++) {
        int first = block_start(p->rows, block, p->blocks);
        int rows = block_start(p->rows, block + 1, p->blocks) - first;
        const uint32_t *a = p->a + first * p->lda;
        for (int panel = part->panel0; panel < part->panel1; panel += unit) {
            struct target target = target_of(p, first, rows, panel, unit, result);
            for (int u = 0; u < unit; u++) {
                float *to = wide + (panel + u - part->panel0) * panel_size;
                if (block == part->block0)
                    run_tile(WIDENED, rows, 1, a, p->lda, m->data + (panel + u) * m->panel, PANEL, m->panel,
                             UNITS_AHEAD, NULL, m->inputs / 2, target.to + u * PANEL, target.ldo, target.is_added, to);
                else
                    run_tile(FLOAT32, rows, 1, a, p->lda, (uint32_t *)to, PANEL, panel_size, UNITS_AHEAD, NULL,
                             m->inputs, target.to + u * PANEL, target.ldo, target.is_added, NULL);
            }
            if (!target.is_done) finish(p, result, width, first, rows, panel, thread);
        }
    }
}

/* Units from a panel to the one that this thread probably reads next, be it of another task; 0 where there is none. */
INLINE size_t way_to_next(const struct product *p, const struct part *part, int panel, int unit) {
    int groups = MAX(1, p->threads / p->row_tasks);
    int next = panel + unit < part->panel1 ? panel + unit : part->panel0 + groups * p->group;
    return next < p->matrix->panels ? (next - panel) * p->matrix->panel : 0;
}

/* One group of panels for one range of blocks. */
static void product_task(void *argument, int task, int thread) {
    const struct product *p = argument;
    const struct matrix *m = p->matrix;
    int panel0 = task / p->row_tasks * p->group, number = task % p->row_tasks;
    struct part part = {panel0, MIN(panel0 + p->group, m->panels), block_start(p->blocks, number, p->row_tasks),
                        block_start(p->blocks, number + 1, p->row_tasks)};
    if (p->is_widened) {
        widened_rows(p, &part, thread);
        return;
    }
    _Alignas(64) float result[MAX_ROWS * MAX_UNIT * PANEL];
    int most = most_rows(p->kind, steps_of(m)), largest = blocks_of(p->rows, p->blocks);
    int unit = p->finish == GATED ? (largest == 1 ? 4 : 2) : MAX(most_panels(largest), most > TILE_MOST ? 2 : 1);
    for (int panel = part.panel0; panel < part.panel1; panel += unit) {
        unit = MIN(unit, part.panel1 - panel);
        /* The first block of rows waits for memory; the others do not, and where there is room in the second cache the
         * second asks for the next panel, those behind it for what comes later. */
        size_t next = W == 16 ? way_to_next(p, &part, panel, unit) : UNITS_AHEAD;
        for (int block = part.block0; block < part.block1; block++) {
            int first = block_start(p->rows, block, p->blocks);
            int rows = block_start(p->rows, block + 1, p->blocks) - first;
            struct target target = target_of(p, first, rows, panel, unit, result);
            size_t ahead = block == part.block0 ? UNITS_AHEAD : next;
            struct runs runs;
            const struct runs *later = NULL;
            if (block >= part.block0 + BLOCKS_BEFORE_LATER) later = next_runs(p->later, thread, steps_of(m), &runs);
            run_tiles(p->kind, rows, unit, p->a + first * p->lda, p->lda, m->data + panel * m->panel, PANEL, m->panel,
                      ahead, later, steps_of(m), target.to, target.ldo, target.is_added, NULL);
            if (!target.is_done) finish(p, result, unit * PANEL, first, rows, panel, thread);
        }
    }
    if (p->kind == PAIRS) tiles_release();
}

#define ROWS_OF_TASK (8 * TILE_MOST)
#define GROUP_BYTES (240 * 1024) /* what several row blocks share should stay in the second cache */

/* How the work is cut: few tasks cost little, many share out evenly. Panels that are widened are best widened once for
 * all rows. */
static void plan_product(struct product *p, int threads) {
    static const int groups[] = {8, 6, 4, 3, 2, 1};
    const struct matrix *m = p->matrix;
    p->threads = threads;
    p->blocks = blocks_of(p->rows, most_rows(p->kind, steps_of(m)));
    p->is_widened = p->kind == BFLOAT16 && p->blocks >= WIDEN_FROM;
    p->row_tasks = blocks_of(p->rows, ROWS_OF_TASK);
    if (p->is_widened) p->row_tasks = MIN(p->row_tasks, blocks_of(4 * threads, MAX(1, m->panels / 2)));
    size_t panel_bytes = p->is_widened ? (size_t)m->inputs * PANEL * 4 : m->panel * 4;
    double least = 0;
    p->group = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        int group = groups[i];
        if (p->finish == GATED && group % 2) continue;
        int tasks = (m->panels + group - 1) / group * p->row_tasks;
        int is_last = group == (p->finish == GATED ? 2 : 1);
        if (!is_last && tasks < 4 * threads && threads > 1) continue;
        if (!is_last && p->blocks > 1 && group * panel_bytes > GROUP_BYTES) continue;
        double cost = (double)((tasks + threads - 1) / threads) * (group + 0.15);
        if (p->group == 0 || cost < least) {
            least = cost;
            p->group = group;
        }
    }
}

static void multiply(struct pool *pool, struct product *p) {
    if (p->rows == 0) return;
    plan_product(p, pool->threads);
    pool_run(pool, product_task, p, (p->matrix->panels + p->group - 1) / p->group * p->row_tasks);
}
