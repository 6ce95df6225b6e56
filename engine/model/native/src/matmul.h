/* Rows times a packed matrix, and what is done with the product while it is in the first cache.
 *
 * A matrix (n outputs, k inputs) is packed into panels of PANEL outputs: for each input (float32) or pair of inputs
 * (bfloat16) the PANEL units side by side. It is read once, in order, and widened in registers. Every product is one
 * chain of multiply-adds over the inputs in their order, whatever the number of rows: a row gives the same bits alone
 * and in a batch. */
#pragma once
#include "vector.h"

#include "pool.h"
#include "quantised.h"
#include "tiles.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#define PANEL (2 * W)
#define TILE_MOST (W == 16 ? 12 : 6) /* rows of one tile: two accumulators each must stay in registers */
#define MAX_ROWS (W == 16 ? 32 : 6)  /* rows of one call: two tile registers of them */
#define MAX_UNIT 4                  /* panels of one tile */

typedef float float_alias __attribute__((may_alias));
/* PAIRS: the rows are bfloat16 too, and the CPU multiplies pairs. WIDENED: as BFLOAT16, and what was widened is kept.
 * INT8, INT4: quantised.h. */
enum kind { FLOAT32, BFLOAT16, PAIRS, WIDENED, INT8, INT4 };
INLINE int is_whole(enum kind kind) { return kind == INT8 || kind == INT4; }
INLINE int bits_of(enum kind kind) { return kind == INT8 ? 8 : 4; }

INLINE vf add_pair_products(vf sum, vu a, vu b) {
#if defined(__AVX512BF16__) && W == 16 && !defined(EMULATE_PAIRS)
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return sum + pair_low(a) * pair_low(b) + pair_high(a) * pair_high(b);
#endif
}
#if (defined(__AVX512BF16__) && W == 16) || defined(EMULATE_PAIRS)
#define HAS_PAIRS 1
#else
#define HAS_PAIRS 0
#endif

/* Left to choose, compilers move sums about between the two halves of a pair: a fifth of the speed with AVX2. */
#if defined(__FMA__) && W == 8
#define MULTIPLY_ADD(sum, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b))
#else
#define MULTIPLY_ADD(sum, a, b) ((sum) += (a) * (b))
#endif

INLINE void add_product(const enum kind kind, vf *sum, vu a, vu b) {
    if (kind == PAIRS) *sum = add_pair_products(*sum, a, b);
    else MULTIPLY_ADD(*sum, (vf)b, (vf)a);
}
/* One number, or pair of them, of a row. Some CPUs broadcast floats faster than integers. */
INLINE vu number(const enum kind kind, const uint32_t *from) {
    return kind == PAIRS ? *from + (vu){0} : (vu)all_f(*(const float_alias *)from);
}

/* a: rows `lda` units apart. b: rows `ldb` units apart, panels `panel` units apart. steps: rows of b.
 * out (rows, panels * PANEL), overwritten. wide: WIDENED puts b there as float32, of one panel. */
INLINE void tile(const enum kind kind, const int rows, const int panels, const uint32_t *a, size_t lda,
                 const uint32_t *b, size_t ldb, size_t panel, int steps, float *out, size_t ldo, float *wide) {
    vf sums[12][2 * MAX_UNIT];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; v++) sums[r][v] = (vf){0};
    for (int s = 0; s < steps; s++, b += ldb) {
        const int halves = kind == BFLOAT16 || kind == WIDENED ? 2 : 1;
#pragma GCC unroll 4
        for (int v = 0; v < panels; v++) __builtin_prefetch(b + v * panel + UNITS_AHEAD);
        for (int half = 0; half < halves; half++) {
            /* Whichever is fewer, rows or outputs, stays in registers. */
            vu x[12], weights[2 * MAX_UNIT];
#pragma GCC unroll 12
            for (int r = 0; r < rows && rows < 2 * panels; r++) x[r] = number(kind, a + r * lda + s * halves + half);
#pragma GCC unroll 8
            for (int v = 0; v < 2 * panels; v++) {
                vu units = load_u(b + (v / 2) * panel + (v % 2) * W);
                weights[v] = halves == 1 ? units : half ? (vu)pair_high(units) : (vu)pair_low(units);
                if (kind == WIDENED) store_f(wide + (2 * s + half) * PANEL + v * W, (vf)weights[v]);
                if (rows >= 2 * panels) continue;
#pragma GCC unroll 12
                for (int r = 0; r < rows; r++) {
                    add_product(kind, &sums[r][v], x[r], weights[v]);
                    KEEP_IN_REGISTER(sums[r][v]);
                }
            }
#pragma GCC unroll 12
            for (int r = 0; r < rows && rows >= 2 * panels; r++) {
                vu one = number(kind, a + r * lda + s * halves + half);
#pragma GCC unroll 8
                for (int v = 0; v < 2 * panels; v++) {
                    add_product(kind, &sums[r][v], one, weights[v]);
                    KEEP_IN_REGISTER(sums[r][v]);
                }
            }
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * panels; v++) store_f(out + r * ldo + v * W, sums[r][v]);
}

#define TILE_ARGUMENTS                                                                                        \
    const uint32_t *a, size_t lda, const uint32_t *b, size_t ldb, size_t panel, int steps, float *out, size_t ldo, \
        float *wide
#define TILE(kind, rows, panels)                                     \
    static void tile_##kind##_##rows##_##panels(TILE_ARGUMENTS) {    \
        tile(kind, rows, panels, a, lda, b, ldb, panel, steps, out, ldo, wide); \
    }
#define FEW_ROWS(X, kind) X(kind, 1, 1) X(kind, 1, 2) X(kind, 1, 3) X(kind, 1, 4) X(kind, 2, 1) X(kind, 2, 2) \
    X(kind, 2, 3) X(kind, 3, 1) X(kind, 3, 2) X(kind, 4, 1) X(kind, 5, 1) X(kind, 6, 1)
#if W == 16
#define ALL_ROWS(X, kind) FEW_ROWS(X, kind) X(kind, 7, 1) X(kind, 8, 1) X(kind, 9, 1) X(kind, 10, 1) X(kind, 11, 1) \
    X(kind, 12, 1)
#else
#define ALL_ROWS(X, kind) FEW_ROWS(X, kind)
#endif
ALL_ROWS(TILE, FLOAT32)
ALL_ROWS(TILE, BFLOAT16)
ALL_ROWS(TILE, WIDENED)
#if HAS_PAIRS
ALL_ROWS(TILE, PAIRS)
#endif

/* How many panels a tile of so many rows may have. */
INLINE int most_panels(int rows) { return rows == 1 ? 4 : rows == 2 ? 3 : rows == 3 ? 2 : 1; }

#define TILE_CASE(kind, rows, panels) \
    case ((kind) * 16 + (rows)) * 8 + (panels):                                               \
        tile_##kind##_##rows##_##panels(a, lda, b, ldb, panel, steps, out, ldo, wide); break;
static void run_tile(enum kind kind, int rows, int panels, TILE_ARGUMENTS) {
    switch ((kind * 16 + rows) * 8 + panels) {
        ALL_ROWS(TILE_CASE, FLOAT32)
        ALL_ROWS(TILE_CASE, BFLOAT16)
        ALL_ROWS(TILE_CASE, WIDENED)
#if HAS_PAIRS
        ALL_ROWS(TILE_CASE, PAIRS)
#endif
    }
}

INLINE int uses_tiles(enum kind kind, int steps) {
    return HAS_TILES && kind == PAIRS && steps % TILE_PAIRS == 0 && tiles_allowed();
}
INLINE int most_rows(enum kind kind, int steps) { return uses_tiles(kind, steps) ? 2 * TILE_ROWS : TILE_MOST; }

/* (rows, count * PANEL) in as few tiles as the registers allow; rows up to most_rows. */
static void run_tiles(enum kind kind, int rows, int count, TILE_ARGUMENTS) {
#if HAS_TILES
    if (uses_tiles(kind, steps)) {
        int at_once = rows > TILE_ROWS ? 1 : 2;
        for (int p = 0; p < count; p += at_once)
            tile_block(rows, at_once == 2 && count - p > 1, a, lda, b + p * panel, panel, steps, out + p * PANEL, ldo);
        return;
    }
#endif
    if (is_whole(kind)) {
        run_whole_tiles(bits_of(kind), rows, count, a, lda, b, panel, steps, out, ldo);
        return;
    }
    int most = most_panels(rows);
    for (int p = 0; p < count; p += most)
        run_tile(kind, rows, MIN(most, count - p), a, lda, b + p * panel, ldb, panel, steps, out + p * PANEL, ldo,
                 wide);
}

struct matrix {
    int outputs, inputs, panels;
    enum kind kind; /* FLOAT32, BFLOAT16, INT8 or INT4 */
    size_t panel;   /* units */
    uint32_t *data;
};

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
    int blocks, group, row_tasks, is_widened; /* the plan: blocks of rows, panels of a task, ranges of blocks */
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
            float result[PANEL];
            for (int i = 0; i < PANEL; i += W) {
                vf g = load_f(gate + i);
                store_f(result + i, g / (1.0f + exp_v(-g)) * load_f(gate + PANEL + i));
            }
            int at = first / 2 + panel / 2 * PANEL, real = MIN(PANEL, outputs - at);
            if (real <= 0) continue;
            if (p->kind == PAIRS) {
                uint16_t narrowed[PANEL];
                for (int i = 0; i < PANEL; i += W) narrow(narrowed + i, load_f(result + i));
                memcpy((uint16_t *)p->out + (row + r) * p->ldo + at, narrowed, real * 2);
            } else if (real == PANEL) {
                memcpy(p->out + (row + r) * p->ldo + at, result, sizeof result);
            } else {
                memcpy(p->out + (row + r) * p->ldo + at, result, real * 4);
            }
        }
}

static void finish_best(const struct product *p, const float *tile, size_t ldt, int row, int rows, int first, int width,
                        int thread) {
    int real = MIN(width, p->matrix->outputs - first);
    for (int r = 0; r < rows; r++) {
        const float *from = tile + r * ldt;
        struct best *best = &p->best[(size_t)thread * p->rows + row + r];
        float top = -INFINITY;
        int is_nan = 0;
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

#define WIDEN_FROM 3 /* blocks of rows: then widening a panel once is cheaper than for each block */

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
            for (int u = 0; u < unit; u++) {
                float *to = wide + (panel + u - part->panel0) * panel_size;
                if (block == part->block0)
                    run_tile(WIDENED, rows, 1, a, p->lda, m->data + (panel + u) * m->panel, PANEL, m->panel,
                             m->inputs / 2, result + u * PANEL, width, to);
                else
                    run_tile(FLOAT32, rows, 1, a, p->lda, (uint32_t *)to, PANEL, panel_size, m->inputs,
                             result + u * PANEL, width, NULL);
            }
            finish(p, result, width, first, rows, panel, thread);
        }
    }
}

INLINE int steps_of(const struct matrix *m) {
    return m->kind == FLOAT32 ? m->inputs : is_whole(m->kind) ? padded_inputs(m->inputs) / 2 : m->inputs / 2;
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
        for (int block = part.block0; block < part.block1; block++) {
            int first = block_start(p->rows, block, p->blocks);
            int rows = block_start(p->rows, block + 1, p->blocks) - first;
            run_tiles(p->kind, rows, unit, p->a + first * p->lda, p->lda, m->data + panel * m->panel, PANEL, m->panel,
                      steps_of(m), result, unit * PANEL, NULL);
            finish(p, result, unit * PANEL, first, rows, panel, thread);
        }
    }
    if (p->kind == PAIRS) tiles_release();
}

#define ROWS_OF_TASK (8 * TILE_MOST)
#define GROUP_BYTES (200 * 1024) /* what several row blocks share should stay in the second cache */

/* How the work is cut: few tasks cost little, many share out evenly. Panels that are widened are best widened once for
 * all rows. */
static void plan_product(struct product *p, int threads) {
    static const int groups[] = {8, 6, 4, 3, 2, 1};
    const struct matrix *m = p->matrix;
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
