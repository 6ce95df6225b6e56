/* One token a row out of its weights, by one uniform number a row: the tokens of draw.py, which says what they are.
 *
 * Enters: logits, or weights in 0 .. 1 of which the largest of a row is 1; (any, count), of which `places` names the
 * rows. Leaves: ids, -1 for a row without any weight; the weights as whole numbers in their place. All sums are of whole
 * numbers below 2^53: exact, in whatever order. */
#pragma once
#include "vector.h"

#define LEVELS 3
#define BUCKETS 2048
#define STREAMS 2
#define PART_OF_ROW 256

struct drawing {
    float *numbers;
    int count;
    const int64_t *places;
    const float *temperatures; /* NULL: weights are given, not logits */
    const float *least;        /* min_p */
    float unit; /* 1 as a whole number, a power of two */
    const int64_t *limits; /* top_k; count: all */
    const double *shares;  /* top_p */
    const double *uniform;
    int64_t *ids;
};

/* Logits become weights. Returns 0 and changes nothing where the largest is no number, or any logit is none. */
static int weigh(float *x, int count, float temperature, float least) {
    vf top = all_f(-INFINITY);
    vi is_nan = {0};
    float last[W], largest;
    int whole = count / W * W;
    for (int i = 0; i < W; i++) last[i] = whole + i < count ? x[whole + i] : -INFINITY;
    for (int i = 0; i <= whole; i += W) {
        vf y = load_f(i < whole ? x + i : last);
        is_nan |= y != y;
        top = larger(y, top);
    }
    largest = max_of(top);
    if (lanes_of(is_nan) || !(largest > -INFINITY && largest < INFINITY)) return 0;
    for (int i = 0; i <= whole; i += W) {
        float *at = i < whole ? x + i : last;
        vf weight = exp_low((load_f(at) - largest) * (1.0f / temperature));
        store_f(at, pick(weight < least, (vf){0}, weight));
    }
    memcpy(x + whole, last, (count - whole) * sizeof *x);
    return 1;
}

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

INLINE int32_t bits_of_number(float f) {
    int32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

/* Numbers whose bits are `from` .. `to`, by the `width` bits from `shift` on. Neighbours go to buckets of their own at
 * first: an addition waits for the one before. Most of a row is usually out of range, and passed by W at a time. */
static void fill_buckets(const float *w, int count, int32_t from, int32_t to, int shift, int width, struct buckets *b) {
    int32_t last = (1 << width) - 1;
    float rest[W] = {0};
    memset(b, 0, STREAMS * sizeof *b);
    for (int first = 0; first < count; first += W) {
        const float *at = w + first;
        if (first + W > count) at = memcpy(rest, at, (count - first) * sizeof *w);
        vi bits = (vi)load_f(at);
        for (uint32_t lanes = lanes_of((bits >= from) & (bits <= to)); lanes != 0; lanes &= lanes - 1) {
            int lane = __builtin_ctz(lanes);
            float number = at[lane];
            int32_t bucket = bits_of_number(number) >> shift & last;
            struct buckets *stream = b + lane % STREAMS;
            stream->counts[bucket]++;
            stream->sums[bucket] += number;
        }
    }
    for (int stream = 1; stream < STREAMS; stream++)
        for (int32_t i = 0; i <= last; i++) {
            b->counts[i] += b[stream].counts[i];
            b->sums[i] += b[stream].sums[i];
        }
}

/* The tokens in falling order until there are `limit`, or their sum is `needed`; none below `least` is among them. No
 * sorting: bits of numbers that are not negative are in the order of the numbers, so a few of the bits at a time say
 * where the cut is. What weighs nothing does not count. */
static struct cut find_cut(const float *w, int count, int64_t limit, double needed, float least) {
    static const int shifts[LEVELS] = {21, 10, 0}, widths[LEVELS] = {11, 11, 10};
    struct buckets b[STREAMS];
    int32_t from = MAX(1, bits_of_number(least)), to = INT32_MAX, edge = 0;
    int64_t before = 0, found = 0;
    double sum = 0;
    for (int level = 0; level < LEVELS; level++) {
        fill_buckets(w, count, from, to, shifts[level], widths[level], b);
        int32_t bucket = (1 << widths[level]) - 1;
        while (bucket > 0 && before + b->counts[bucket] < limit && sum + b->sums[bucket] < needed) {
            before += b->counts[bucket];
            sum += b->sums[bucket--];
        }
        edge |= bucket << shifts[level];
        from = MAX(from, edge);
        to = edge | ((1 << shifts[level]) - 1);
        found = b->counts[bucket];
    }
    struct cut cut = {.sum = sum};
    memcpy(&cut.edge, &edge, 4);
    while (cut.equals < found && before + cut.equals < limit && cut.sum < needed) {
        cut.equals++;
        cut.sum += cut.edge;
    }
    return cut;
}

/* The first id, in the order of ids, with whose weight the sum of what stays is over `target`. Of equal ones the first
 * stay. */
static int64_t find_token(const float *w, int count, struct cut cut, double target) {
    double sum = 0;
    int64_t equals = cut.equals;
    for (int first = 0; first < count; first += PART_OF_ROW) {
        int part = MIN(PART_OF_ROW, count - first), i = 0;
        double sums[W] = {0}, whole = 0;
        int32_t edges[W] = {0};
        int64_t found = 0;
        for (; i + W <= part; i += W)
            for (int lane = 0; lane < W; lane++) {
                float x = w[first + i + lane];
                sums[lane] += x > cut.edge ? x : 0;
                edges[lane] += x == cut.edge;
            }
        for (int lane = 0; lane < W; lane++) whole += sums[lane], found += edges[lane];
        for (; i < part; i++) {
            whole += w[first + i] > cut.edge ? w[first + i] : 0;
            found += w[first + i] == cut.edge;
        }
        found = MIN(found, equals);
        if (sum + whole + found * (double)cut.edge > target)
            for (i = first; i < first + part; i++) {
                int stays = w[i] > cut.edge || (w[i] == cut.edge && equals-- > 0);
                if (stays && (sum += w[i]) > target) return i;
            }
        sum += whole + found * (double)cut.edge;
        equals -= found;
    }
    return -1;
}

#define SAFELY 0.999 /* what is not exact is off by less */

/* About the sum of all that are at least so large, or a little less. */
static double sum_from(const float *w, int count, float least) {
    double total = 0;
    for (int first = 0; first < count; first += PART_OF_ROW) {
        vf sums = {0};
        for (int i = first; i + W <= MIN(first + PART_OF_ROW, count); i += W) {
            vf x = load_f(w + i);
            sums += pick(x >= least, x, (vf){0});
        }
        total += sum_of(sums);
    }
    return total;
}

/* A weight that no token falls short of which stays when they are cut at `share` of the total. All that are lighter than
 * an even part of the rest, taken together, are less than the rest; often a larger weight may be had. */
static float find_least(const float *w, int count, double share, double total) {
    double least = (1 - share) * total / count * SAFELY;
    for (int factor = 64; factor > 1; factor /= 8)
        if (sum_from(w, count, (float)(least * factor)) * SAFELY >= share * total) return (float)(least * factor);
    return (float)least;
}

static void draw_task(void *argument, int row, int thread) {
    const struct drawing *d = argument;
    (void)thread;
    float *w = d->numbers + (size_t)d->places[row] * d->count;
    int64_t limit = d->limits[row];
    double share = d->shares[row], total;
    d->ids[row] = -1;
    if (d->temperatures != NULL && !weigh(w, d->count, d->temperatures[row], d->least[row])) return;
    total = make_whole(w, d->count, d->unit);
    if (!(total > 0)) return;
    struct cut cut = {.edge = 0, .equals = d->count, .sum = total};
    if (limit < d->count) cut = find_cut(w, d->count, limit, INFINITY, 0);
    /* top_p is a share of what top_k leaves. */
    if (share < 1) {
        float least = limit < d->count ? 0 : find_least(w, d->count, share, total);
        cut = find_cut(w, d->count, limit, share * cut.sum, least);
    }
    d->ids[row] = find_token(w, d->count, cut, d->uniform[row] * cut.sum);
}
