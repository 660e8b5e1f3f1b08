/* A thread that creates the segment, or registers a point, loses its CPU to a real-time thread
 * that measures, too. Prints the CPU time and the sleeps of the real-time thread.
 *
 * real_time WHERE: where the first thread loses its CPU: before, within or after the creation of
 * the segment, or at the point. */
#include <pfp.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script.h"
#include "waits.h"

/* MADV_POPULATE_WRITE, which older headers lack. */
enum { CALLS = 1000, POPULATE_WRITE = 23 };

static const char *where;
static pthread_t maker;
static atomic_int is_at_work;
static sem_t has_come, may_go;
static unsigned long long called;

/* Wakes the real-time thread if the first thread is at WHERE. Both share one CPU, so the real-time
 * thread runs before this function returns. */
static void lose_the_cpu(const char *here)
{
    if (atomic_load(&is_at_work) && pthread_equal(pthread_self(), maker) &&
        strcmp(here, where) == 0 && atomic_exchange(&is_at_work, 0))
        sem_post(&has_come);
}

/* These functions replace the C library's. pfp calls each at one position that WHERE can name. */
int gethostname(char *name, size_t size)
{
    lose_the_cpu("before");
    strncpy(name, "here", size);
    return 0;
}

int ftruncate(int file, off_t size)
{
    lose_the_cpu("within");
    return (int)syscall(SYS_ftruncate, file, size);
}

int ftruncate64(int file, off_t size)
{
    return ftruncate(file, size);
}

int unlinkat(int folder, const char *path, int flags)
{
    lose_the_cpu("after");
    return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int madvise(void *start, size_t size, int advice)
{
    /* pfp populates the pages of a point's entry if it does not know that they exist. */
    if (advice == POPULATE_WRITE)
        lose_the_cpu("point");
    return (int)syscall(SYS_madvise, start, size, advice);
}

static void call(unsigned calls)
{
    for (unsigned i = 0; i < calls; i++) {
        PFP_SCOPE("real time");
        called++;
    }
}

static void *make(void *unused)
{
    (void)unused;
    maker = pthread_self();
    if (strcmp(where, "point") == 0)
        EXPECT(pfpCreate() == PFP_OK);
    atomic_store(&is_at_work, 1);
    call(1);
    return NULL;
}

static void *preempt(void *unused)
{
    (void)unused;
    EXPECT(sem_wait(&has_come) == 0);
    const unsigned long long before = cpu_us();
    const long slept = sleeps();
    call(CALLS);
    const long slept_since = sleeps() - slept;
    say("us %llu", cpu_us() - before);
    say("slept %ld", slept_since);
    EXPECT(sem_wait(&may_go) == 0);
    call(CALLS);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t first, second;
    pthread_attr_t real_time;
    struct sched_param priority;
    cpu_set_t one;
    int refused;
    EXPECT(count == 2);
    where = arguments[1];
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
    EXPECT(sem_init(&has_come, 0, 0) == 0 && sem_init(&may_go, 0, 0) == 0);
    memset(&priority, 0, sizeof priority);
    priority.sched_priority = 10;
    EXPECT(pthread_attr_init(&real_time) == 0);
    EXPECT(pthread_attr_setinheritsched(&real_time, PTHREAD_EXPLICIT_SCHED) == 0);
    EXPECT(pthread_attr_setschedpolicy(&real_time, SCHED_FIFO) == 0);
    EXPECT(pthread_attr_setschedparam(&real_time, &priority) == 0);
    refused = pthread_create(&second, &real_time, preempt, NULL);
    if (refused) {
        say("refused %d", refused);
        reach("done");
        return 0;
    }
    EXPECT(pthread_create(&first, NULL, make, NULL) == 0);
    EXPECT(pthread_join(first, NULL) == 0);
    EXPECT(sem_post(&may_go) == 0);
    EXPECT(pthread_join(second, NULL) == 0);
    say("called %llu", called);
    reach("done");
    return 0;
}
