/* Loads of the examples, and the table of their figures. */
#ifndef LOADS_H
#define LOADS_H

#include <inttypes.h>
#include <pfp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Points by number. */
enum { OVERHEAD, TUNING, OUTER, INNER, TASK_1, INTERRUPT };

#define US INT64_C(1000)
#define MS (1000 * US)
/* Load of the outer region before the inner one, and again after it. */
#define OUTER_HALF (1 * MS)
#define INNER_LOAD (4 * MS)
#define TASK_1_LOAD (1300 * US)

#define DEFAULT_PERIODS 100
#define CALIBRATION_LOOPS 10000
#define TUNING_ROUNDS 101
/* Weight of one tuning round, stated directly because these rounds have no period. */
#define TUNING_ALPHA 0.05f
/* A period of 10 ms over a time constant of 50 ms. */
#define ALPHA (10.0f / 50.0f)

/* Time between two readings of the clock near the end of a load. On average, a load
 * is half of this time too long. */
#define STEP (2 * US)

/* Number of loops that take 1 ms. */
static uint64_t loops_per_ms;

static int64_t now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

static int64_t cpu_ns(void)
{
    return now_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* A chain of dependent operations (Marsaglia's xorshift). It uses no memory, depends
 * little on the other hyperthread, and the compiler cannot shorten it. */
static void spin(uint64_t loops)
{
    volatile uint64_t seed = 1;
    uint64_t chain = seed;
    for (uint64_t i = 0; i < loops; i++) {
        chain ^= chain << 13;
        chain ^= chain >> 7;
        chain ^= chain << 17;
    }
    seed = chain;
}

static int64_t time_to_spin(uint64_t loops)
{
    int64_t before = cpu_ns();
    spin(loops);
    return cpu_ns() - before;
}

static int ascending(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Determines the number of loops that take 1 ms on the CPU. */
static void tune(void)
{
    uint64_t rates[TUNING_ROUNDS], loops = 1000;

    /* Doubling the number until it takes long enough also lets the CPU reach its
     * working frequency. */
    while (time_to_spin(loops) < 20 * MS)
        loops *= 2;
    loops /= 20;
    for (int i = 0; i < TUNING_ROUNDS; i++) {
        int64_t took;
        pfpBegin(TUNING, NULL);
        took = time_to_spin(loops);
        pfpEnd(TUNING, 0);
        loops = (uint64_t)((double)loops * (double)MS / (double)took);
        rates[i] = loops;
    }
    /* Uses the median, which a round delayed by an interrupt or a hypervisor does not
     * move. */
    qsort(rates, TUNING_ROUNDS, sizeof rates[0], ascending);
    loops_per_ms = rates[TUNING_ROUNDS / 2];
}

static uint64_t loops_in(int64_t length_ns)
{
    return loops_per_ms * (uint64_t)length_ns / (uint64_t)MS;
}

/* Sum of the times that the loads of each point took, by the clock that ends a load. */
static int64_t computed_ns[INTERRUPT + 1];

/* Computes for a given time, by a clock that stops while the caller does not run. Each
 * step is a quarter of the remaining time, so the load ends in time even if the core
 * has become slower since tuning. Only an interrupted step can end late. */
static void compute(int id, int64_t length_ns, int64_t (*clock_ns)(void))
{
    int64_t start = clock_ns(), took;
    while ((took = clock_ns() - start) < length_ns) {
        int64_t left = length_ns - took;
        spin(loops_in(left > 4 * STEP ? left / 4 : STEP));
    }
    computed_ns[id] += took;
}

/* Creates and enables the points up to `last`. */
static void set_up_points(int last)
{
    pfpCreate();
    for (int id = OVERHEAD; id <= last; id++)
        pfpEnable(id);
    pfpSetAlpha(TUNING, TUNING_ALPHA);
    for (int id = OUTER; id <= last; id++)
        pfpSetAlpha(id, ALPHA);
    pfpCalibrate(CALIBRATION_LOOPS, 1);
    tune();
}

/* Prints one line for each point. C is exclusive cycles, T is time. */
static void print_table(int last)
{
    double ticks_per_ms = pfp_ticks_per_second() / 1e3;
    for (int id = OVERHEAD; id <= last; id++) {
        pfpStats_t stats;
        if (pfpGetStats(id, &stats) != PFP_OK || stats.n_count == 0) {
            printf("ID: %02d, not measured\n", id);
            continue;
        }
        printf("ID: %02d, n=%" PRIu64 ", C=%" PRIu64 ", Cmin=%" PRIu64 ", Cmax=%" PRIu64
               ", C-avg=%.0f, Avg-T=%.6fms\n",
               id, stats.n_count, stats.c_total, stats.c_min, stats.c_max,
               /* Without a weight, the plain mean replaces the moving average. */
               id == OVERHEAD ? stats.c_mean : stats.c_average, stats.c_mean / ticks_per_ms);
        if (computed_ns[id] > 0)
            printf("# ID: %02d computed T=%.6fms\n", id,
                   (double)computed_ns[id] / (double)MS / (double)stats.n_count);
    }
    fflush(stdout);
}

/* Waits until the standard input ends, so that a viewer can show the program. */
static void hold(void)
{
    while (getchar() != EOF)
        ;
}

#endif
