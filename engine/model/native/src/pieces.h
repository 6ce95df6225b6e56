/* What happens to one token between the products: norm, rope, rounding, a row of the embedding. */
#pragma once
#include "matmul.h"

/* x times weight over its root mean square. `to` may be x itself when it is float. */
static void rms_norm(const float *x, const float *weight, int size, float epsilon, void *to, int to_bfloat16) {
    vf squares = {0};
    float rest = 0;
    int i = 0;
    for (; i + W <= size; i += W) squares += load_f(x + i) * load_f(x + i);
    for (; i < size; i++) rest += x[i] * x[i];
    float factor = 1.0f / sqrtf((sum_of(squares) + rest) / (float)size + epsilon);
    for (i = 0; i + W <= size; i += W) {
        vf result = load_f(x + i) * factor * load_f(weight + i);
        if (to_bfloat16) narrow((uint16_t *)to + i, result);
        else store_f((float *)to + i, result);
    }
    for (; i < size; i++) {
        float result = x[i] * factor * weight[i];
        if (to_bfloat16) ((uint16_t *)to)[i] = narrow_one(result);
        else ((float *)to)[i] = result;
    }
}

/* Pairs of one head side by side, times cosine + i sine. */
static void rotate(float *head, const float *rope, int dim) {
    for (int i = 0; i < dim; i += 2) {
        float real = head[i], imaginary = head[i + 1];
        head[i] = real * rope[i] - imaginary * rope[i + 1];
        head[i + 1] = real * rope[i + 1] + imaginary * rope[i];
    }
}

static void write_numbers(void *to, const float *from, int count, int to_bfloat16) {
    int i = 0;
    if (!to_bfloat16) {
        memcpy(to, from, (size_t)count * 4);
        return;
    }
    for (; i + W <= count; i += W) narrow((uint16_t *)to + i, load_f(from + i));
    for (; i < count; i++) ((uint16_t *)to)[i] = narrow_one(from[i]);
}

/* Row `row` of a packed matrix. */
static void unpack_row(const struct matrix *matrix, int64_t row, float *to) {
    const uint32_t *from = matrix->data + row / PANEL * matrix->panel + row % PANEL;
    if (is_whole(matrix->kind)) {
        unpack_whole_row(bits_of(matrix->kind), matrix->data + row / PANEL * matrix->panel, (int)(row % PANEL),
                         matrix->inputs, to);
        return;
    }
    if (matrix->kind == FLOAT32) {
        for (int i = 0; i < matrix->inputs; i++) memcpy(to + i, from + (size_t)i * PANEL, 4);
        return;
    }
    for (int i = 0; i < matrix->inputs / 2; i++) {
        uint32_t unit = from[(size_t)i * PANEL];
        to[2 * i] = widen_one((uint16_t)unit);
        to[2 * i + 1] = widen_one((uint16_t)(unit >> 16));
    }
}
