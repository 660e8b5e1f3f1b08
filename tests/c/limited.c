/* Measures nearly all of its work, and prints its CPU time. */
#include <pfp.h>

#include <time.h>

#include "script.h"

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    EXPECT(clock_gettime(clock, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(void)
{
    volatile unsigned sink = 0;
    pfp_point_t *work = pfp_point("work", "limited", 1);
    double since, cpu;
    pfpStats_t stats;

    /* Work that is done only once comes first, and is not counted. */
    pfp_begin(work);
    pfp_end(work, 0);
    EXPECT(pfp_reset(work) == PFP_OK);
    since = seconds_of(CLOCK_MONOTONIC);
    cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    while (seconds_of(CLOCK_MONOTONIC) - since < 3) {
        pfp_begin(work);
        for (unsigned i = 0; i < 2000000; i++)
            sink = sink + i;
        pfp_end(work, 0);
    }
    cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    EXPECT(pfp_get_stats(work, &stats) == PFP_OK);
    say("cpu_us %.0f", cpu * 1e6);
    say("wall_us %.0f", (seconds_of(CLOCK_MONOTONIC) - since) * 1e6);
    say("measured_us %.0f", (double)stats.c_total / pfp_ticks_per_second() * 1e6);
    say("switches %llu", (unsigned long long)stats.n_switches);
    reach("done");
    return 0;
}
