/* Annotates while there is no memory, and then with memory again: on a thread that has annotated
 * before and on one that has not, with known names and with new ones. Prints "well" at the end. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define ROUNDS 1000

static pthread_barrier_t step;

static void annotate(const char *known)
{
    char name[32];
    for (int round = 0; round < ROUNDS; round++) {
        nvtxRangePushA(known);
        snprintf(name, sizeof name, "new %d", round);
        nvtxRangePushA(name);
        nvtxMarkA("marked");
        nvtxRangePop();
        nvtxRangePop();
    }
}

static void *another(void *unused)
{
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    annotate("another");
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    annotate("another");
    return unused;
}

int main(void)
{
    struct rlimit limit;
    pthread_t thread;
    void *taken[4096];
    size_t size, count = 0;

    pthread_barrier_init(&step, NULL, 2);
    nvtxMarkA("marked");
    if (pthread_create(&thread, NULL, another, NULL) != 0)
        return 1;
    pthread_barrier_wait(&step);
    nvtxRangePushA("known");
    nvtxRangePop();
    /* Forbid new mappings, and use up the heap. */
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &limit);
    for (size = 1 << 20; size >= 16; size /= 2)
        while (count < sizeof taken / sizeof *taken && (taken[count] = malloc(size)))
            count++;
    pthread_barrier_wait(&step);
    annotate("known");
    pthread_barrier_wait(&step);
    while (count)
        free(taken[--count]);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
    pthread_barrier_wait(&step);
    annotate("known");
    pthread_join(thread, NULL);
    puts("well");
    return 0;
}
