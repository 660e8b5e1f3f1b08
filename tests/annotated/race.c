/* Threads that make their first NVTX call at once. Prints nothing. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#define THREADS 8

static pthread_barrier_t barrier;

static void *call(void *argument)
{
    (void)argument;
    pthread_barrier_wait(&barrier);
    nvtxRangePushA("first");
    nvtxRangePop();
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, call, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
