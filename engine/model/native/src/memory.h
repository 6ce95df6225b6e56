/* Memory in huge pages where the system has them. Matrices lie side by side in large slabs: most are smaller than a
 * huge page, and reading one through ordinary pages costs up to a fifth. Pages that nobody touches take no memory. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "vector.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define SLAB_BYTES ((size_t)64 << 20)

static void *big_memory(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, bytes >= HUGE_PAGE ? HUGE_PAGE : 64, MAX(bytes, 64)) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

struct slab { /* at its own beginning */
    struct slab *before;
    size_t bytes, used;
};

struct slabs {
    struct slab *last;
};

#define WHOLE_LINES(bytes) (((bytes) + 63) / 64 * 64)

/* 64-byte aligned, until slabs_free. NULL: no memory. */
static void *slabs_take(struct slabs *slabs, size_t bytes) {
    struct slab *slab = slabs->last;
    bytes = WHOLE_LINES(bytes);
    if (slab == NULL || slab->bytes - slab->used < bytes) {
        size_t header = WHOLE_LINES(sizeof *slab), size = MAX(header + bytes, SLAB_BYTES);
        slab = big_memory(size);
        if (slab == NULL) return NULL;
        *slab = (struct slab){slabs->last, size, header};
        slabs->last = slab;
    }
    void *memory = (char *)slab + slab->used;
    slab->used += bytes;
    return memory;
}

static void slabs_free(struct slabs *slabs) {
    while (slabs->last != NULL) {
        struct slab *slab = slabs->last;
        slabs->last = slab->before;
        free(slab);
    }
}
