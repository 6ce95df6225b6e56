/* For benchmarks alone: what this machine can do at best, and one product by itself. */
#pragma once
#include "matmul.h"
#include "pool.h"

#define READ_BLOCK (256 * 1024)
#define CHAINS 12
#define CHAIN_STEPS 2000

struct reading {
    const float *from;
    size_t bytes;
    float sums[MAX_THREADS];
};

static void read_task(void *argument, int task, int thread) {
    struct reading *r = argument;
    const float *from = r->from + (size_t)task * READ_BLOCK / 4;
    vf sums[4] = {{0}, {0}, {0}, {0}};
    for (size_t i = 0; i < READ_BLOCK / 4; i += 4 * W)
        for (int j = 0; j < 4; j++) sums[j] += load_f(from + i + j * W);
    r->sums[thread] += sum_of(sums[0] + sums[1] + sums[2] + sums[3]);
}

struct chains {
    int pairs; /* multiply pairs of bfloat16, else float32 */
    float sums[MAX_THREADS];
};

INLINE float run_chains(const enum kind kind) {
    vf sums[CHAINS], total = {0};
    vu factor = kind == PAIRS ? 0x3f003f00u + (vu){0} : (vu)all_f(0.5f);
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) sums[c] = all_f((float)c);
    for (int i = 0; i < CHAIN_STEPS; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) {
            if (kind == PAIRS) sums[c] = add_pair_products(sums[c], factor, factor);
            else sums[c] = sums[c] * (vf)factor + (vf)factor;
            KEEP_IN_REGISTER(sums[c]);
        }
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) total += sums[c];
    return sum_of(total);
}

/* Independent chains, as many as hide the latency. */
static void chain_task(void *argument, int task, int thread) {
    struct chains *chains = argument;
    (void)task;
    chains->sums[thread] += chains->pairs ? run_chains(PAIRS) : run_chains(FLOAT32);
}
