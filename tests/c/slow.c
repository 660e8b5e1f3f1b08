/* Like src/bin/slow.rs, in C: `slow CAUSE SEED NOTES`. The causes are sleep, lock, fault and ran. */
#include <pfp.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "script.h"

enum { THREADS = 4, CALLS = 60000, PAGE = 4096, PAGES = 4096 };
static const unsigned long long LIMIT_NS = 5000000;
static unsigned long long slow_ns = 20000000;

/* Where the slow call is. */
static const char *cause;
static unsigned planted_thread, planted_call, planted_level;

static pfp_point_t *levels[3];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t is_held;
static unsigned long long noted[4];

static unsigned long long now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

static void sleep_ns(unsigned long long ns)
{
    struct timespec time = {0, (long)ns};
    nanosleep(&time, NULL);
}

static void *hold(void *nothing)
{
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&is_held);
    sleep_ns(slow_ns);
    pthread_mutex_unlock(&lock);
    return nothing;
}

static void wait_for_lock(void)
{
    pthread_t holder;
    pthread_barrier_init(&is_held, NULL, 2);
    EXPECT(pthread_create(&holder, NULL, hold, NULL) == 0);
    pthread_barrier_wait(&is_held);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    pthread_join(holder, NULL);
}

/* Touches new pages; each takes a fault of its own. */
static void fault(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    volatile char *pages = mmap(NULL, PAGE * PAGES, PROT_READ | PROT_WRITE, flags, -1, 0);
    EXPECT(pages != MAP_FAILED);
    madvise((void *)pages, PAGE * PAGES, MADV_NOHUGEPAGE);
    for (int page = 0; page < PAGES; page++)
        pages[page * PAGE] = 1;
    munmap((void *)pages, PAGE * PAGES);
}

static void work(int rounds)
{
    for (volatile int i = 0; i < rounds; i++)
        ;
}

/* Spends the time of the slow call, and notes it. */
static void plant(void)
{
    unsigned long long begin = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
    if (strcmp(cause, "sleep") == 0)
        sleep_ns(slow_ns);
    else if (strcmp(cause, "lock") == 0)
        wait_for_lock();
    else
        while (now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu < slow_ns)
            strcmp(cause, "fault") == 0 ? fault() : work(1000);
    noted[0] = (unsigned long long)syscall(SYS_gettid);
    noted[1] = now_ns(CLOCK_REALTIME) / 1000000;
    noted[2] = now_ns(CLOCK_MONOTONIC) - begin;
    noted[3] = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
}

/* A call at a level, with calls at the next one inside. */
static void request(unsigned level, int is_slow)
{
    PFP_SCOPE_OF(levels[level]);
    work(20);
    if (is_slow && level == planted_level)
        plant();
    if (level + 1 < 3) {
        request(level + 1, is_slow && level < planted_level);
        request(level + 1, 0);
    }
}

static void *calls(void *thread)
{
    for (unsigned call = 0; call < CALLS; call++)
        request(0, thread == &noted[planted_thread] && call == planted_call);
    return NULL;
}

int main(int count, char **given)
{
    EXPECT(count == 4);
    cause = given[1];
    /* On a busy machine, other calls are slow, too. Each further try is slower. */
    slow_ns += (unsigned long long)(atoi(given[2]) / 1000) * 20000000;
    srandom((unsigned)atoi(given[2]));
    planted_thread = (unsigned)random() % THREADS;
    planted_call = CALLS / 10 + (unsigned)random() % (CALLS * 8 / 10);
    planted_level = (unsigned)random() % 3;
    const char *names[3] = {"request", "step", "detail"};
    for (int level = 0; level < 3; level++)
        levels[level] = pfp_point(names[level], NULL, 0);
    EXPECT(pfp_keep_over(levels[0], LIMIT_NS) == PFP_OK);

    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, calls, &noted[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    FILE *notes = fopen(given[3], "w");
    EXPECT(notes != NULL);
    for (int i = 0; i < 4; i++)
        fprintf(notes, "%llu ", noted[i]);
    fprintf(notes, "%u", planted_level);
    return fclose(notes);
}
