/* A thread jumps out of a begin or end at any instruction, for example while it reads its clock.
 * After each jump it sleeps and works in a region, which must have exactly the time of the work.
 * Prints the largest deviation.
 *
 * jumped EACH: jumps at every EACH-th instruction of a begin and end, one after the other, and
 * then equally often at random instructions. */
#include <pfp.h>

#if !defined(__x86_64__)
int main(void)
{
    return 77;
}
#else
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "script.h"
#include "single_step.h"

#define MS 1000000LL

static sigjmp_buf behind;
/* The instruction to leave at, and the number of instructions so far. */
static unsigned long at, steps;
static volatile sig_atomic_t ends, may_jump;
static pfp_point_t *outer, *inner, *judged;
static double ticks_per_ns;
/* The largest error of a region's time on the CPU, and the largest part of its sleep that was
 * missing, both in nanoseconds. */
static double worst_busy, worst_asleep;
static unsigned long tried;

static long long cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 * MS + now.tv_nsec;
}

static void work(long long ns)
{
    const long long start = cpu_ns();
    while (cpu_ns() - start < ns)
        ;
}

static void nap(long long ns)
{
    struct timespec left = {0, (long)ns};
    while (nanosleep(&left, &left) != 0)
        ;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Works and sleeps in a region, and compares its figures with the thread's CPU clock. */
static void judge(void)
{
    pfpStats_t before, after;
    long long ran;
    EXPECT(pfp_get_stats(judged, &before) == PFP_OK);
    pfp_begin(judged);
    ran = cpu_ns();
    work(MS);
    nap(5 * MS);
    work(MS);
    ran = cpu_ns() - ran;
    pfp_end(judged, 0);
    EXPECT(pfp_get_stats(judged, &after) == PFP_OK);
    EXPECT(after.n_count == before.n_count + 1);
    const double busy = (double)(after.c_total - before.c_total) / ticks_per_ns;
    const double asleep = (double)(after.c_off_cpu - before.c_off_cpu) / ticks_per_ns;
    worst_busy = larger(worst_busy, larger(busy - (double)ran, (double)ran - busy));
    worst_asleep = larger(worst_asleep, 5 * MS - asleep);
    tried++;
}

static void on_trap(int signal, siginfo_t *about, void *context)
{
    (void)signal, (void)about;
    steps += steps_done(context);
    while (!ends && steps < at && step_aside(context))
        steps++;
    if (!ends && steps < at) {
        step_on(context, at - steps);
        return;
    }
    step_no_more(context);
    if (!ends)
        siglongjmp(behind, 1);
}

/* Sends SIGALRM after some microseconds, so that it arrives at a random instruction of a round. */
static void set_alarm(long us)
{
    const struct itimerval once = {{0, 0}, {0, us}};
    EXPECT(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

static void on_alarm(int signal)
{
    (void)signal;
    if (may_jump)
        siglongjmp(behind, 1);
    /* The thread was off the CPU, so it has not begun its rounds yet. Try again. */
    set_alarm(200);
}

/* Sleeps first, so that the begin reads the clock after a switch. */
static void measure(void)
{
    nap(1);
    pfp_begin(inner);
    pfp_end(inner, 0);
}

/* Returns whether the thread reached the instruction. */
static int jump_at_the_instruction(void)
{
    steps = 0;
    ends = 0;
    if (sigsetjmp(behind, 1))
        return 1;
    nap(1);
    single_step(1);
    pfp_begin(inner);
    pfp_end(inner, 0);
    ends = 1;
    single_step(0);
    return 0;
}

static int jump_at_random(void)
{
    if (sigsetjmp(behind, 1) == 0) {
        may_jump = 1;
        for (;;)
            measure();
    }
    may_jump = 0;
    return 1;
}

/* The region that a jump leaves open is discarded when the region around it ends. */
static int is_left(int jump(void))
{
    pfp_begin(outer);
    const int has_jumped = jump();
    pfp_end(outer, 0);
    return has_jumped;
}

int main(int count, char **arguments)
{
    EXPECT(count == 2);
    const unsigned long each = strtoul(arguments[1], NULL, 10);
    struct sigaction action;
    inner = pfp_point("inner", "jumped", 1);
    judged = pfp_point("judged", "jumped", 2);
    outer = pfp_point("outer", "jumped", 3);
    measure();
    judge();
    ticks_per_ns = pfp_ticks_per_second() / 1e9;
    worst_busy = worst_asleep = 0;
    tried = 0;

    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    EXPECT(sigaction(SIGTRAP, &action, NULL) == 0);
    for (at = 1; is_left(jump_at_the_instruction); at += each)
        judge();
    const unsigned long by_step = tried;
    say("stepped %lu", by_step);

    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    while (tried < 2 * by_step) {
        set_alarm(200 + (long)(tried * 7919 % 1000));
        EXPECT(is_left(jump_at_random));
        judge();
    }
    say("tried %lu", tried);
    say("busy_us %.0f", worst_busy / 1e3);
    say("asleep_us %.0f", worst_asleep / 1e3);
    reach("done");
    return 0;
}
#endif
