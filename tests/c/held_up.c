/* Three threads whose calls wait for 20 ms each: for a lock that a fourth thread holds, for a pipe,
 * and for a time. They end with the standard input. */
#include <pfp.h>

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "script.h"

pthread_mutex_t JOBS = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];

static void pause_ms(long count)
{
    struct timespec time = {0, count * 1000000};
    nanosleep(&time, NULL);
}

static void wait_for_lock(void)
{
    PFP_SCOPE("locked");
    pthread_mutex_lock(&JOBS);
    pthread_mutex_unlock(&JOBS);
}

static void wait_for_data(void)
{
    PFP_SCOPE("fed");
    char byte;
    EXPECT(read(ends[0], &byte, 1) == 1);
}

static void wait_for_time(void)
{
    PFP_SCOPE("timed");
    pause_ms(20);
}

static void hold(void)
{
    PFP_SCOPE("flush");
    pthread_mutex_lock(&JOBS);
    EXPECT(write(ends[1], "x", 1) == 1);
    pause_ms(20);
    pthread_mutex_unlock(&JOBS);
}

static void *repeat(void *call)
{
    for (;;) {
        (*(void (**)(void))call)();
        pause_ms(2);
    }
    return NULL;
}

int main(void)
{
    static void (*calls[])(void) = {wait_for_lock, wait_for_data, wait_for_time, hold};
    static const char *const names[] = {"locked", "fed", "timed", "holder"};
    EXPECT(pipe(ends) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, repeat, &calls[i]) == 0);
        EXPECT(pthread_setname_np(thread, names[i]) == 0);
    }
    reach("started");
    return 0;
}
