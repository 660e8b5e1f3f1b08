/* Two threads that share nothing but pfp. Only pfp orders them, so a race detector reports every
 * access of pfp whose ordering it does not see.
 *
 * strangers ROUNDS FILE FILE: the files are for snapshots. */
#include <pfp.h>

#include <pthread.h>
#include <sched.h>

#include "script.h"

enum { POINTS = 16, TASKS = 4 };

static int rounds;
static char **files;
/* All accesses are relaxed, which orders nothing. */
static int arrived, measured;

/* Waits until both threads are there. */
static void meet(int round)
{
    __atomic_fetch_add(&arrived, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&arrived, __ATOMIC_RELAXED) < 2 * (round + 1))
        sched_yield();
}

static void measure(void)
{
    PFP_SCOPE("the same");
    PFP_METERED("with amounts", 100, 200);
    __atomic_fetch_add(&measured, 1, __ATOMIC_RELAXED);
}

static void *brief(void *unused)
{
    (void)unused;
    EXPECT(pfp_register_thread("brief") == PFP_OK);
    measure();
    return NULL;
}

/* Starts a detached thread, so that no join orders it before the next such thread. */
static void start_brief(void)
{
    pthread_attr_t detached;
    pthread_t thread;
    EXPECT(pthread_attr_init(&detached) == 0);
    EXPECT(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    EXPECT(pthread_create(&thread, &detached, brief, NULL) == 0);
    pthread_attr_destroy(&detached);
}

/* Creates points that the other thread creates as well, and some of its own. */
static void make_points(int which, int round)
{
    for (int i = 0; i < POINTS; i++) {
        char name[32];
        pfp_point_t *same, *own;
        snprintf(name, sizeof name, "round %d, %d", round, i);
        same = pfp_point(name, __FILE__, 1);
        own = pfp_point(name, __FILE__, 2 + (unsigned)which);
        EXPECT(same && own && same != own);
        {
            PFP_SCOPE_OF(same);
            EXPECT(pfp_begin(own) == PFP_OK && pfp_end(own, 0) == PFP_OK);
        }
        EXPECT(pfp_disable(same) == PFP_OK && pfp_enable(same) == PFP_OK);
        EXPECT(pfp_set_alpha(same, 0.5) == PFP_OK && pfp_reset(same) == PFP_OK);
        same = pfp_point_amounts(name, __FILE__, 4, "items,bytes");
        EXPECT(same);
        {
            PFP_AMOUNTS_OF(same, (unsigned)i, 7u);
        }
    }
}

/* Calls functions that read from pfp and measure nothing. */
static void ask(int which, int round)
{
    pfpStats_t stats;
    uint64_t sums[2];
    char name[32];
    pfp_point_t *point = pfp_point_amounts("asked", __FILE__, 1, "items,bytes");
    EXPECT(point && pfp_get_stats(point, &stats) == PFP_OK);
    EXPECT(pfp_get_amounts(point, sums, 2) == PFP_OK);
    while (pfpCreate() != PFP_OK)
        ; /* It waits at most a millisecond for the other thread's call, and then fails. */
    EXPECT(pfpEnable(5) == PFP_OK);
    snprintf(name, sizeof name, "%d in %d", which, round);
    EXPECT(pfpSetName(5, name) == PFP_OK && pfpGetStats(5, &stats) == PFP_OK);
    EXPECT(pfpSetAlpha(5, 0.25f) == PFP_OK && pfpResetStats(5) == PFP_OK);
    EXPECT(pfp_set_program_name(name) == PFP_OK && pfp_register_thread(name) == PFP_OK);
    EXPECT(pfp_ticks_per_second() > 0 && pfp_on_cpu_ticks() > 0);
    pfp_set_enabled(1);
    EXPECT(pfp_snapshot_over(files[which]) == PFP_OK);
}

static void run_tasks(int which)
{
    static char handles[2][TASKS];
    char *last = NULL;
    for (int i = 0; i < TASKS; i++)
        if (pfpTaskCreate(&handles[which][i]) == PFP_OK) {
            pfpTaskSwitch(last, &handles[which][i]);
            measure();
            last = &handles[which][i];
        }
    pfpTaskSwitch(last, NULL);
    for (int i = 0; i < TASKS; i++)
        pfpTaskDelete(&handles[which][i]);
}

static void *stranger(void *argument)
{
    int which = argument != NULL;
    for (int round = 0; round < rounds; round++) {
        meet(round);
        measure();
        start_brief();
        make_points(which, round);
        ask(which, round);
        run_tasks(which);
        for (int i = 0; i < 100; i++)
            measure();
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[2];
    EXPECT(count == 4 && (rounds = atoi(arguments[1])) > 0);
    files = arguments + 2;
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, stranger, i ? threads : NULL) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    say("measured %d", __atomic_load_n(&measured, __ATOMIC_RELAXED));
    return 0;
}
