/* Time stolen from the calling thread, as in `src/stolen.rs`: a thread that does not sleep is on a
 * CPU, waits for one, or is stolen from. */
#ifndef STOLEN_H
#define STOLEN_H

#include <stdio.h>
#include <time.h>

/* The thread's times so far; `waited_ns` is negative if the kernel does not report it. */
struct account {
    long long wall_ns, cpu_ns, waited_ns;
};

static long long clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long waited_ns(void)
{
    long long waited = -1;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file) {
        if (fscanf(file, "%*d %lld", &waited) != 1)
            waited = -1;
        fclose(file);
    }
    return waited;
}

static struct account account_now(void)
{
    struct account now;
    long long before;
    do {
        before = waited_ns();
        now.wall_ns = clock_ns(CLOCK_MONOTONIC_RAW);
        now.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        now.waited_ns = waited_ns();
    } while (now.waited_ns != before);
    return now;
}

/* Nanoseconds stolen since `since`, if the thread has not slept. */
static long long stolen_ns(struct account since)
{
    struct account now = account_now();
    long long stolen = now.wall_ns - since.wall_ns - (now.cpu_ns - since.cpu_ns) -
                       (now.waited_ns - since.waited_ns);
    return since.waited_ns < 0 || stolen < 0 ? 0 : stolen;
}

#endif
