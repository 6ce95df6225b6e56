/* Threads that share out the tasks of one phase after the other.
 *
 * The caller works too. A phase ends when all its tasks are done, not when all threads have come: a thread that the
 * machine gives no core is not waited for, unless it holds a task. All state of a phase is one word (phase, number of
 * tasks, next task), so that a late thread cannot take a task of a phase it knows nothing of.
 *
 * One caller at a time. Threads die in pool_stop. They hear no signals: those are for the process's main thread. */
#pragma once
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "vector.h"

#define MAX_THREADS 256
#ifndef TASK_BITS
#define TASK_BITS 20
#endif
#define TASK_MASK ((1u << TASK_BITS) - 1)
#define MOST_TASKS ((int)TASK_MASK - MAX_THREADS) /* each thread may count one past the last */
#define SPINS_BEFORE_SLEEP 2000
#define SPINS_BEFORE_YIELD 4000
#define TASKS_BEFORE_LOOK 4
#define LOOK_NS 200000

typedef void (*task_fn)(void *job, int task, int thread);

struct pool {
    _Alignas(64) _Atomic uint64_t word; /* phase << 40 | tasks << 20 | next */
    _Alignas(64) _Atomic int done;
    _Alignas(64) task_fn run;
    void *job;
    _Atomic int sleepers;
    _Atomic int stopping;
    int threads;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t ids[MAX_THREADS];
};

struct pool_seat {
    struct pool *pool;
    int number;
};

static inline void pool_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int pool_has_work(struct pool *pool) {
    uint64_t word = atomic_load(&pool->word);
    return (word & TASK_MASK) < ((word >> TASK_BITS) & TASK_MASK);
}

/* Linux asks whether another thread shall have the core at each tick of its timer, every 4 ms or so, and whenever the
 * CPU time of the one that runs is read. So it is read every now and then (0.5 us): who wakes while all cores compute
 * waits for a time slice at most, not for the tick behind it. */
static inline void pool_let_others_in(void) {
    static _Thread_local int64_t next;
    static _Thread_local unsigned tasks;
    struct timespec time;
    if (++tasks % TASKS_BEFORE_LOOK != 0) return;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t now = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    if (now < next) return;
    next = now + LOOK_NS;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
}

/* Takes and runs one task. False when there is none left. */
static inline int pool_take(struct pool *pool, int thread) {
    if (!pool_has_work(pool)) return 0;
    uint64_t word = atomic_fetch_add(&pool->word, 1);
    uint32_t next = word & TASK_MASK;
    if (next >= ((word >> TASK_BITS) & TASK_MASK)) return 0;
    pool->run(pool->job, (int)next, thread);
    atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
    pool_let_others_in();
    return 1;
}

static void *pool_thread(void *argument) {
    struct pool_seat seat = *(struct pool_seat *)argument;
    struct pool *pool = seat.pool;
    free(argument);
    int idle = 0;
    while (!atomic_load(&pool->stopping)) {
        if (pool_take(pool, seat.number)) {
            idle = 0;
        } else if (++idle < SPINS_BEFORE_SLEEP) {
            pool_pause();
        } else {
            pthread_mutex_lock(&pool->lock);
            atomic_fetch_add(&pool->sleepers, 1);
            while (!pool_has_work(pool) && !atomic_load(&pool->stopping)) pthread_cond_wait(&pool->wake, &pool->lock);
            atomic_fetch_sub(&pool->sleepers, 1);
            pthread_mutex_unlock(&pool->lock);
            idle = 0;
        }
    }
    return NULL;
}

static void pool_wake(struct pool *pool) {
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

/* Runs tasks 0 .. tasks - 1, at most MOST_TASKS, on all threads and returns when they are done. The caller is thread
 * 0. */
static void pool_run(struct pool *pool, task_fn run, void *job, int tasks) {
    if (tasks <= 1 || pool->threads == 1) {
        for (int task = 0; task < tasks; task++) run(job, task, 0);
        return;
    }
    pool->run = run;
    pool->job = job;
    atomic_store(&pool->done, 0);
    uint64_t phase = (atomic_load(&pool->word) >> (2 * TASK_BITS)) + 1;
    atomic_store(&pool->word, phase << (2 * TASK_BITS) | (uint64_t)tasks << TASK_BITS);
    pool_wake(pool);
    while (pool_take(pool, 0)) {
    }
    for (int spins = 0; atomic_load_explicit(&pool->done, memory_order_acquire) < tasks; spins++) {
        if (spins < SPINS_BEFORE_YIELD) pool_pause();
        else sched_yield(); /* whoever holds the last task may need this very core */
    }
}

/* With fewer threads than asked for when the system gives no more. */
static void pool_start(struct pool *pool, int threads) {
    sigset_t all, before;
    pool->threads = 1;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int number = 1; number < MIN(threads, MAX_THREADS); number++) {
        struct pool_seat *seat = malloc(sizeof *seat);
        if (seat == NULL) break;
        *seat = (struct pool_seat){pool, number};
        if (pthread_create(&pool->ids[number], NULL, pool_thread, seat) != 0) {
            free(seat);
            break;
        }
        pool->threads = number + 1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void pool_stop(struct pool *pool) {
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stopping, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int number = 1; number < pool->threads; number++) pthread_join(pool->ids[number], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
}
