/* One token a row out of its weights, by one uniform number a row: the tokens of draw.py, which says what they are.
 *
 * Enters: weights (rows, count) in 0 .. 1, the largest of a row 1. Leaves: ids, -1 for a row without any weight; the
 * weights as whole numbers in their place. All sums are of whole numbers below 2^53: exact, in whatever order. */
#pragma once
#include "vector.h"

#define LEVELS 3
#define BUCKETS 2048
#define STREAMS 4
#define PART_OF_ROW 256

struct drawing {
    float *weights;
    int count;
    float unit; /* 1 as a whole number, a power of two */
    const int64_t *limits; /* top_k; count: all */
    const double *shares;  /* top_p */
    const double *uniform;
    int64_t *ids;
};

struct cut { /* where, in falling order, the tokens that stay end */
    float edge; /* the weight of the last of them */
    int64_t equals; /* how many of this very weight stay */
    double sum; /* of all that stay */
};

/* Rounds to whole numbers, ties to even; returns their sum. */
static double make_whole(float *w, int count, float unit) {
    double sums[W] = {0}, total = 0;
    int i = 0;
    for (; i + W <= count; i += W)
        for (int lane = 0; lane < W; lane++) {
            w[i + lane] = rintf(w[i + lane] * unit);
            sums[lane] += w[i + lane];
        }
    for (; i < count; i++) {
        w[i] = rintf(w[i] * unit);
        total += w[i];
    }
    for (int lane = 0; lane < W; lane++) total += sums[lane];
    return total;
}

struct buckets { /* of numbers with the same bits: how many, and their sum */
    int32_t counts[BUCKETS];
    double sums[BUCKETS];
};

/* The numbers whose bits from `shift` + `width` on are `prefix`, by their next `width` bits. Neighbours go to buckets
 * of their own at first: an addition that waits for the one before takes four times as long. */
static void fill_buckets(const float *w, int count, int shift, int width, uint32_t prefix, struct buckets *b) {
    uint32_t last = (1u << width) - 1;
    memset(b, 0, STREAMS * sizeof *b);
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, w + i, 4);
        if ((uint64_t)bits >> (shift + width) != prefix) continue;
        b[i % STREAMS].counts[bits >> shift & last]++;
        b[i % STREAMS].sums[bits >> shift & last] += w[i];
    }
    for (int stream = 1; stream < STREAMS; stream++)
        for (uint32_t i = 0; i <= last; i++) {
            b->counts[i] += b[stream].counts[i];
            b->sums[i] += b[stream].sums[i];
        }
}

/* The tokens in falling order until there are `limit`, or their sum is `needed`. No sorting: bits of numbers that are
 * not negative are in the order of the numbers, so a few of the bits at a time say where the cut is. */
static struct cut find_cut(const float *w, int count, int64_t limit, double needed) {
    static const int shifts[LEVELS] = {21, 10, 0}, widths[LEVELS] = {11, 11, 10};
    struct buckets b[STREAMS];
    uint32_t prefix = 0;
    int64_t before = 0, found = 0;
    double sum = 0;
    for (int level = 0; level < LEVELS; level++) {
        fill_buckets(w, count, shifts[level], widths[level], prefix, b);
        int bucket = (1 << widths[level]) - 1;
        while (bucket > 0 && before + b->counts[bucket] < limit && sum + b->sums[bucket] < needed) {
            before += b->counts[bucket];
            sum += b->sums[bucket--];
        }
        prefix = prefix << widths[level] | bucket;
        found = b->counts[bucket];
    }
    struct cut cut = {.sum = sum};
    memcpy(&cut.edge, &prefix, 4);
    while (cut.equals < found && before + cut.equals < limit && cut.sum < needed) {
        cut.equals++;
        cut.sum += cut.edge;
    }
    return cut;
}

/* Zero for whatever the cut leaves out; of equal ones the last. */
static void apply_cut(float *w, int count, struct cut cut) {
    int64_t equals = 0;
    for (int i = 0; i < count; i++) {
        w[i] = w[i] < cut.edge ? 0 : w[i];
        equals += w[i] == cut.edge;
    }
    for (int i = count - 1; equals > cut.equals; i--)
        if (w[i] == cut.edge) {
            w[i] = 0;
            equals--;
        }
}

/* The first id, in the order of ids, with whose weight the sum is over `target`. */
static int64_t find_token(const float *w, int count, double target) {
    double sum = 0;
    for (int first = 0; first < count; first += PART_OF_ROW) {
        int part = MIN(PART_OF_ROW, count - first);
        double sums[W] = {0};
        for (int i = 0; i < part; i++) sums[i % W] += w[first + i];
        double whole = 0;
        for (int lane = 0; lane < W; lane++) whole += sums[lane];
        if (sum + whole > target)
            for (int i = 0; i < part; i++)
                if ((sum += w[first + i]) > target) return first + i;
        sum += whole;
    }
    return -1;
}

static void draw_task(void *argument, int row, int thread) {
    const struct drawing *d = argument;
    (void)thread;
    float *w = d->weights + (size_t)row * d->count;
    int64_t limit = d->limits[row];
    double total = make_whole(w, d->count, d->unit), share = d->shares[row];
    d->ids[row] = -1;
    if (!(total > 0)) return;
    struct cut cut = {.edge = 0, .equals = d->count, .sum = total};
    if (limit < d->count) cut = find_cut(w, d->count, limit, INFINITY);
    /* top_p is a share of what top_k leaves. */
    if (share < 1) cut = find_cut(w, d->count, limit, share * cut.sum);
    if (limit < d->count || share < 1) apply_cut(w, d->count, cut);
    d->ids[row] = find_token(w, d->count, d->uniform[row] * cut.sum);
}
