/* Memory for blocks of the KV cache that a later step writes first: thousands of page faults in one step, if requests
 * began together, are shared out among those before it (engine/executor/pages.py). */
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; an older one refuses, and pages come when they are written */
#endif

struct populating { /* the same bytes of each layer's keys and values: a task each */
    char *bases[2];
    size_t layer, from, bytes;
};

/* Gives the pages memory, and leaves what is in them. */
static void populate_task(void *argument, int task, int thread) {
    const struct populating *p = argument;
    (void)thread;
    uintptr_t begin = (uintptr_t)p->bases[task % 2] + task / 2 * p->layer + p->from;
    uintptr_t page = begin & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    madvise((void *)page, begin + p->bytes - page, MADV_POPULATE_WRITE);
}

static void populate_upcoming(struct model *m, const struct batch *b) {
    const struct layout *l = &m->layout;
    size_t bytes = bytes_of(l), block = (size_t)l->kv_heads * l->block_size * l->dim * bytes;
    struct populating p = {{b->keys, b->values}, b->layer_stride * bytes, b->upcoming * block, b->num_upcoming * block};
    if (b->num_upcoming > 0) pool_run(&m->pool, populate_task, &p, 2 * m->sizes.layers);
}
