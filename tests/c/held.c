/* A thread stops while it creates a task and holds the library's lock. The main thread then creates
 * tasks, and prints its CPU time, its sleeps, and how many tasks were refused. */
#include <pfp.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "script.h"
#include "waits.h"

enum { CREATED = 200 };

static pthread_t holder;
static atomic_int is_held, may_go;
static char objects[CREATED + 1];

/* Replaces the C library's function: the thread `holder` stays in it until `may_go` is set. */
int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    typedef int unlock_t(pthread_mutex_t *);
    extern void *dlsym(void *, const char *);
    union {
        void *found;
        unlock_t *unlock;
    } real;
    real.found = dlsym((void *)-1L, "pthread_mutex_unlock");
    if (holder && pthread_equal(pthread_self(), holder) && !atomic_exchange(&is_held, 1))
        while (!atomic_load(&may_go))
            usleep(1000);
    return real.unlock(mutex);
}

static void *hold(void *unused)
{
    (void)unused;
    holder = pthread_self();
    EXPECT(pfpTaskCreate(&objects[CREATED]) == PFP_OK);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    EXPECT(pfpCreate() == PFP_OK);
    EXPECT(pthread_create(&thread, NULL, hold, NULL) == 0);
    while (!atomic_load(&is_held))
        usleep(1000);
    const unsigned long long before = cpu_us();
    const long slept = sleeps();
    unsigned refused = 0;
    for (int i = 0; i < CREATED; i++)
        refused += pfpTaskCreate(&objects[i]) == PFP_EBUSY;
    const long slept_since = sleeps() - slept;
    say("us %llu", cpu_us() - before);
    say("slept %ld", slept_since);
    say("refused %u", refused);
    atomic_store(&may_go, 1);
    EXPECT(pthread_join(thread, NULL) == 0);
    /* The library has recovered: all tasks that were refused can be created now. */
    for (int i = 0; i < CREATED; i++)
        EXPECT(pfpTaskCreate(&objects[i]) == PFP_OK);
    reach("done");
    return 0;
}
