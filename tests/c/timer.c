/* Prints the results of the timer in C and C++, which the test compares with other clocks. */
#ifdef __cplusplus
#include <pfp.hpp>
#else
#include <pfp.h>
#endif
#include <time.h>

#include "script.h"

static double ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void burn(double time)
{
    double end = ms(CLOCK_THREAD_CPUTIME_ID) + time;
    while (ms(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
}

int main(void)
{
    struct timespec nap = {0, 20000000};
    double wall, cpu, first, second;
#ifdef __cplusplus
    pfp::cpu_timer timer;
    pfp::cpu_timer fresh;
#define START() timer.start()
#define STOP() timer.stop()
#define ELAPSED() timer.elapsed_ms()
#define ON_CPU() timer.on_cpu_ms()
#define FRESH() fresh.elapsed_ms(), fresh.on_cpu_ms()
#else
    pfp_timer_t timer = PFP_TIMER_INIT;
    pfp_timer_t fresh = PFP_TIMER_INIT;
#define START() pfp_timer_start(&timer)
#define STOP() pfp_timer_stop(&timer)
#define ELAPSED() pfp_timer_elapsed_ms(&timer)
#define ON_CPU() pfp_timer_on_cpu_ms(&timer)
#define FRESH() pfp_timer_elapsed_ms(&fresh), pfp_timer_on_cpu_ms(&fresh)
#endif
    wall = ms(CLOCK_MONOTONIC);
    cpu = ms(CLOCK_THREAD_CPUTIME_ID);
    START();
    burn(10);
    first = ELAPSED();
    nanosleep(&nap, NULL);
    second = ELAPSED();
    STOP();
    wall = ms(CLOCK_MONOTONIC) - wall;
    cpu = ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
    nanosleep(&nap, NULL);
    say("fresh %f %f", FRESH());
    say("laps %f %f", first, second);
    say("timer %f %f", ELAPSED(), ON_CPU());
    say("again %f %f", ELAPSED(), ON_CPU());
    say("oracle %f %f", wall, cpu);
    say("null %d %d", pfp_timer_start(NULL), pfp_timer_stop(NULL));
    return 0;
}
