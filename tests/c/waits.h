/* The CPU time and sleeps of a thread that waits for others. */
#ifndef WAITS_H
#define WAITS_H

#include <sys/resource.h>
#include <time.h>

/* CPU time of the calling thread. */
static unsigned long long cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* How often the calling thread has slept, which its CPU time does not show. */
static long sleeps(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : -1;
}

#endif
