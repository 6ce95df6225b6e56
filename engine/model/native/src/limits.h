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

/* Independent chains, as many as hide the latency. */
static void chain_task(void *argument, int task, int thread) {
    float *out = argument;
    vf sums[CHAINS], factor = all_f(0.5f);
    (void)task;
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) sums[c] = all_f((float)c);
    for (int i = 0; i < CHAIN_STEPS; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) {
            sums[c] = sums[c] * factor + factor;
            KEEP_IN_REGISTER(sums[c]);
        }
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) out[thread] += sum_of(sums[c]);
}
