/* Products of bfloat16 pairs on CPUs with tile registers (AMX): 16 rows times 16 outputs times 16 pairs at a time.
 *
 * The panels of matmul.h are in the order that tiles want. Used for any number of rows, so that a row's bits do not
 * depend on how many there are. EMULATE_TILES does the same in plain C, for tests. */
#pragma once
#include "vector.h"

#define TILE_ROWS 16
#define TILE_PAIRS 16

#if W == 16 && (defined(__AMX_BF16__) || defined(EMULATE_TILES))
#define HAS_TILES 1
#else
#define HAS_TILES 0
#endif

#if HAS_TILES
struct tile_shape { /* as the CPU reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#if defined(EMULATE_TILES)
static _Thread_local uint32_t tile_units[8][TILE_ROWS][TILE_PAIRS];
static _Thread_local struct tile_shape tile_shape_now;
static int tiles_allowed(void) { return 1; }
static inline void tiles_release(void) {}
static inline void tile_configure(const struct tile_shape *shape) { tile_shape_now = *shape; }
static inline void emulate_load(int t, const void *from, size_t stride) {
    for (int r = 0; r < tile_shape_now.rows[t]; r++) memcpy(tile_units[t][r], (const char *)from + r * stride, 64);
}
static inline void emulate_store(int t, void *to, size_t stride) {
    for (int r = 0; r < tile_shape_now.rows[t]; r++) memcpy((char *)to + r * stride, tile_units[t][r], 64);
}
static inline void emulate_add(int c, int a, int b) {
    for (int m = 0; m < tile_shape_now.rows[a]; m++)
        for (int n = 0; n < TILE_PAIRS; n++) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < TILE_PAIRS; k++) {
                uint32_t x = tile_units[a][m][k], y = tile_units[b][k][n];
                even += widen_one((uint16_t)x) * widen_one((uint16_t)y);
                odd += widen_one((uint16_t)(x >> 16)) * widen_one((uint16_t)(y >> 16));
            }
            memcpy(&sum, &tile_units[c][m][n], 4);
            sum += even + odd;
            memcpy(&tile_units[c][m][n], &sum, 4);
        }
}
#define TILE_ZERO(t) memset(tile_units[t], 0, sizeof tile_units[t])
#define TILE_LOAD(t, from, stride) emulate_load(t, from, stride)
#define TILE_STORE(t, to, stride) emulate_store(t, to, stride)
#define TILE_ADD(c, a, b) emulate_add(c, a, b)
#else
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ASK_FOR_STATE 0x1023 /* ARCH_REQ_XCOMP_PERM: the kernel gives a process tile registers only when asked */
#define TILE_STATE 18
static int tiles_allowed(void) {
    static int known = -1;
    if (known < 0) known = syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_STATE) == 0;
    return known;
}
static inline void tiles_release(void) {
    if (tiles_allowed()) _tile_release();
}
/* Compilers do not know that tiles are loaded from memory: what was written before must be there. */
static inline void tile_configure(const struct tile_shape *shape) {
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(shape);
}
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_ADD(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

/* Sums 0 and 1 belong to the first 16 rows of a panel, 2 and 3 to the next 16 rows or, with `second_panel`, to the
 * same rows of the next panel. Tiles 4 and 5 hold weights, 6 and 7 rows. Numbers of tiles must be literal. */
static void tile_block(int rows, int second_panel, const uint32_t *a, size_t lda, const uint32_t *b, size_t panel,
                       int steps, float *out, size_t ldo) {
    int first = MIN(rows, TILE_ROWS), second = rows - first;
    struct tile_shape shape = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        shape.row_bytes[t] = 64;
        int is_first = t < 2 || t == 6 || second_panel;
        shape.rows[t] = (uint8_t)(t == 4 || t == 5 ? TILE_PAIRS : is_first ? first : MAX(second, 1));
    }
    tile_configure(&shape);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    size_t stride = 4 * lda, row = 8 * W; /* bytes from row to row, of the rows and of a panel */
    for (int s = 0; s < steps; s += TILE_PAIRS, b += TILE_PAIRS * 2 * W) {
        TILE_LOAD(6, a + s, stride);
        TILE_LOAD(4, b, row);
        TILE_LOAD(5, b + W, row);
        TILE_ADD(0, 6, 4);
        TILE_ADD(1, 6, 5);
        if (second_panel) {
            TILE_LOAD(4, b + panel, row);
            TILE_LOAD(5, b + panel + W, row);
            TILE_ADD(2, 6, 4);
            TILE_ADD(3, 6, 5);
        } else if (second > 0) {
            TILE_LOAD(7, a + TILE_ROWS * lda + s, stride);
            TILE_ADD(2, 7, 4);
            TILE_ADD(3, 7, 5);
        }
    }
    TILE_STORE(0, out, 4 * ldo);
    TILE_STORE(1, out + W, 4 * ldo);
    if (second_panel) {
        TILE_STORE(2, out + 2 * W, 4 * ldo);
        TILE_STORE(3, out + 3 * W, 4 * ldo);
    } else if (second > 0) {
        TILE_STORE(2, out + TILE_ROWS * ldo, 4 * ldo);
        TILE_STORE(3, out + TILE_ROWS * ldo + W, 4 * ldo);
    }
}
#else
static inline int tiles_allowed(void) { return 0; }
static inline void tiles_release(void) {}
#endif
