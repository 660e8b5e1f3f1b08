/* The thread that creates the segment stops halfway, for longer than other threads wait for it.
 * Prints how long the main thread waits for it, and how many calls all threads make. */
#include <pfp.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script.h"
#include "waits.h"

enum { CALLS = 1000 };

static const char *stop_in;
static pthread_t maker;
static atomic_int is_making, is_stopped, may_go;
static unsigned long long called;

static void stop(const char *where)
{
    const int is_maker = atomic_load(&is_making) && pthread_equal(pthread_self(), maker);
    if (is_maker && strcmp(where, stop_in) == 0 && !atomic_exchange(&is_stopped, 1))
        while (!atomic_load(&may_go))
            usleep(1000);
}

/* These functions replace the C library's. pfp calls them while it creates the segment. */
int gethostname(char *name, size_t size)
{
    stop("before");
    strncpy(name, "here", size);
    return 0;
}

int ftruncate(int file, off_t size)
{
    stop("within");
    return (int)syscall(SYS_ftruncate, file, size);
}

int ftruncate64(int file, off_t size)
{
    return ftruncate(file, size);
}

int unlinkat(int folder, const char *path, int flags)
{
    stop("after");
    return (int)syscall(SYS_unlinkat, folder, path, flags);
}

static void call(unsigned calls)
{
    for (unsigned i = 0; i < calls; i++) {
        PFP_SCOPE("stalled");
        called++;
    }
}

static void *make(void *unused)
{
    (void)unused;
    maker = pthread_self();
    atomic_store(&is_making, 1);
    call(1);
    return NULL;
}

static void *call_some(void *unused)
{
    (void)unused;
    call(CALLS);
    return NULL;
}

static void join(pthread_t thread)
{
    EXPECT(pthread_join(thread, NULL) == 0);
}

int main(int count, char **arguments)
{
    pthread_t first, later;
    EXPECT(count == 2);
    stop_in = arguments[1];
    EXPECT(pthread_create(&first, NULL, make, NULL) == 0);
    while (!atomic_load(&is_stopped))
        usleep(1000);
    /* A waiting thread spins, so its CPU time includes the wait. When it then creates the segment,
     * file operations may take it off the CPU a few times. */
    const unsigned long long before = cpu_us();
    const long slept = sleeps();
    call(CALLS);
    EXPECT(sleeps() - slept < 20);
    say("waited_us %llu", cpu_us() - before);
    /* Wait until the creator's lease has expired, which takes a second. */
    usleep(1500 * 1000);
    call(CALLS);
    atomic_store(&may_go, 1);
    join(first);
    call(CALLS);
    EXPECT(pthread_create(&later, NULL, call_some, NULL) == 0);
    join(later);
    say("called %llu", called);
    reach("done");
    return 0;
}
