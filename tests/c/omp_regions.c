/* Parallel regions of known work, with the program's own counts.
 *
 * omp_regions REGIONS UNIT SLEEP_MS: acquires locks. Then runs REGIONS regions of two threads, of
 * which the first does 20 times the work of the second, and sleeps after each region; then as many
 * regions with a barrier and a loop, as many nested regions, and tasks. */
#include <omp.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script.h"

#define SHARE 20

/* A fixed number of instructions, which the compiler cannot remove. */
static unsigned long work(unsigned long loops)
{
    unsigned long sum = 1;
    for (unsigned long i = 0; i < loops; i++) {
        sum = sum * 6364136223846793005UL + i;
        __asm__ volatile("" : "+r"(sum));
    }
    return sum;
}

/* Fails to acquire a lock, and acquires a nested lock repeatedly. Only three calls count as waits:
 * the first acquisition of each lock, and the try that succeeds. */
static int locks(int times)
{
    omp_lock_t plain;
    omp_nest_lock_t nested;
    int failed = 0;
    omp_init_lock(&plain);
    omp_init_nest_lock(&nested);
    omp_set_lock(&plain);
    for (int i = 0; i < times; i++)
        failed += !omp_test_lock(&plain);
    omp_unset_lock(&plain);
    failed -= omp_test_lock(&plain);
    for (int i = 0; i < times; i++)
        omp_set_nest_lock(&nested);
    for (int i = 0; i < times; i++)
        omp_unset_nest_lock(&nested);
    return failed;
}

static unsigned long uneven(int regions, unsigned long unit, unsigned sleep_ms)
{
    unsigned long all = 0;
    for (int i = 0; i < regions; i++) {
#pragma omp parallel num_threads(2) reduction(+ : all)
        all += work(omp_get_thread_num() == 0 ? SHARE * unit : unit);
        usleep(1000 * sleep_ms);
    }
    return all;
}

static unsigned long barriers(int regions, unsigned long unit)
{
    unsigned long all = 0;
    for (int i = 0; i < regions; i++) {
#pragma omp parallel num_threads(2) reduction(+ : all)
        {
            all += work(omp_get_thread_num() == 0 ? SHARE * unit : unit);
#pragma omp barrier
#pragma omp for
            for (int j = 0; j < 2; j++)
                all += work(unit);
        }
    }
    return all;
}

static unsigned long nested(int regions)
{
    unsigned long members = 0;
    for (int i = 0; i < regions; i++) {
#pragma omp parallel num_threads(2)
        {
#pragma omp parallel num_threads(2)
#pragma omp atomic
            members++;
            /* Without this statement, the inner region is begun by a tail call, and returns into
             * the runtime. */
            __asm__ volatile("" ::: "memory");
        }
    }
    return members;
}

/* One thread creates the tasks; the other one executes some of them in the barrier. */
static unsigned long tasks(int number, unsigned long unit)
{
    unsigned long all = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    for (int i = 0; i < number; i++) {
#pragma omp task shared(all)
        {
            unsigned long mine = work(unit);
#pragma omp atomic
            all += mine;
        }
    }
    return all;
}

int main(int argc, char **argv)
{
    int regions = argc > 1 ? atoi(argv[1]) : 10;
    unsigned long unit = argc > 2 ? strtoul(argv[2], NULL, 10) : 100000;
    unsigned sleep_ms = argc > 3 ? (unsigned)atoi(argv[3]) : 0;

    say("thread %ld", syscall(SYS_gettid));
    say("locks %d", locks(100));
    say("uneven %lu", uneven(regions, unit, sleep_ms));
    reach("uneven");
    say("barriers %lu", barriers(regions, unit));
    say("nested %lu", nested(regions));
    say("tasks %lu", tasks(200, unit));
    reach("done");
    return 0;
}
