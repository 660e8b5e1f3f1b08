/* Threads with different names begin at once, before there is a segment. With `stops`, the first
 * thread that creates the segment stops halfway until all others have finished.
 *
 * start stops|goes-on THREADS CALLS */
#include <pfp.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "script.h"

enum { MOST = 256 };

static pthread_barrier_t all_there, all_through, may_end;
static unsigned long threads, calls;
static int stops;
static atomic_int is_stopped;
static atomic_ulong through;

/* Replaces the C library's function, which the thread that creates the segment calls. */
int gethostname(char *name, size_t size)
{
    if (stops && !atomic_exchange(&is_stopped, 1))
        while (atomic_load(&through) < threads - 1)
            usleep(1000);
    strncpy(name, "here", size);
    return 0;
}

static void *begin(void *number)
{
    char name[32];
    snprintf(name, sizeof name, "starter %lu", (unsigned long)number);
    pthread_barrier_wait(&all_there);
    EXPECT(pfp_register_thread(name) == PFP_OK);
    for (unsigned long i = 0; i < calls; i++) {
        PFP_SCOPE("start");
    }
    atomic_fetch_add(&through, 1);
    pthread_barrier_wait(&all_through);
    pthread_barrier_wait(&may_end);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t started[MOST];
    EXPECT(count == 4);
    stops = strcmp(arguments[1], "stops") == 0;
    threads = strtoul(arguments[2], NULL, 10);
    calls = strtoul(arguments[3], NULL, 10);
    EXPECT(threads <= MOST);
    EXPECT(pthread_barrier_init(&all_there, NULL, (unsigned)threads) == 0);
    EXPECT(pthread_barrier_init(&all_through, NULL, (unsigned)threads + 1) == 0);
    EXPECT(pthread_barrier_init(&may_end, NULL, (unsigned)threads + 1) == 0);
    for (unsigned long i = 0; i < threads; i++)
        EXPECT(pthread_create(&started[i], NULL, begin, (void *)i) == 0);
    pthread_barrier_wait(&all_through);
    /* The threads live until the test has seen their names. */
    reach("done");
    pthread_barrier_wait(&may_end);
    for (unsigned long i = 0; i < threads; i++)
        EXPECT(pthread_join(started[i], NULL) == 0);
    return 0;
}
