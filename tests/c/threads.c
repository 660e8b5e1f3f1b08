/* Eight threads that measure at the same time, each equally often. */
#include <pfp.h>

#include <pthread.h>

#include "script.h"

enum { THREADS = 8, ROUNDS = 20000 };

static pfp_point_t *shared_point;
static unsigned long long sums[THREADS];

static unsigned inner(unsigned x)
{
    PFP_SCOPE("inner");
    return x * 2654435761u;
}

static void *run(void *argument)
{
    unsigned long long *sum = (unsigned long long *)argument;
    char name[32];
    snprintf(name, sizeof name, "worker %d", (int)(sum - sums));
    EXPECT(pfp_register_thread(name) == PFP_OK);
    /* All threads request this point at the same time, and get the same pointer. */
    pfp_point_t *point = pfp_point("by hand", __FILE__, 1);
    EXPECT(point == __atomic_load_n(&shared_point, __ATOMIC_RELAXED));
    for (unsigned round = 0; round < ROUNDS; round++) {
        PFP_SCOPE("outer");
        *sum += inner(round);
        EXPECT(pfp_begin(point) == PFP_OK);
        EXPECT(pfpBegin(5, NULL) == PFP_OK);
        EXPECT(pfpEnd(5, round % 4 != 3) == PFP_OK);
        EXPECT(pfp_end(point, 0) == PFP_OK);
    }
    return NULL;
}

static void *look(void *stop)
{
    pfpStats_t stats;
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) {
        EXPECT(pfpGetStats(5, &stats) == PFP_OK);
        EXPECT(pfp_get_stats(shared_point, &stats) == PFP_OK);
        EXPECT(stats.n_count <= (uint64_t)THREADS * ROUNDS);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS], looking;
    pfpStats_t stats;
    int stop = 0;

    EXPECT(pfpCreate() == PFP_OK);
    EXPECT(pfpEnable(5) == PFP_OK);
    shared_point = pfp_point("by hand", __FILE__, 1);
    EXPECT(shared_point != NULL);
    EXPECT(pthread_create(&looking, NULL, look, &stop) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, run, &sums[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    EXPECT(pthread_join(looking, NULL) == 0);

    EXPECT(pfpGetStats(5, &stats) == PFP_OK);
    EXPECT(stats.n_count == (uint64_t)THREADS * ROUNDS / 4);
    EXPECT(pfp_get_stats(shared_point, &stats) == PFP_OK);
    EXPECT(stats.n_count == (uint64_t)THREADS * ROUNDS);
    say("each %d", THREADS * ROUNDS);
    reach("done");
    return 0;
}
