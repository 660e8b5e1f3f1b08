/* Two threads that wait for each other's mutex for ever, and one that waits for one of the two. */
#include <pfp.h>

#include <pthread.h>
#include <unistd.h>

#include "script.h"

static pthread_mutex_t ACCOUNTS = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t JOURNAL = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;

static void *transfer(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "payer");
    PFP_SCOPE("transfer");
    pthread_mutex_lock(&ACCOUNTS);
    pthread_barrier_wait(&all);
    pthread_mutex_lock(&JOURNAL);
    return NULL;
}

static void *audit(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "auditor");
    PFP_SCOPE("audit");
    pthread_mutex_lock(&JOURNAL);
    pthread_barrier_wait(&all);
    pthread_mutex_lock(&ACCOUNTS);
    return NULL;
}

static void *report(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "reporter");
    PFP_SCOPE("report");
    pthread_barrier_wait(&all);
    pthread_mutex_lock(&ACCOUNTS);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    EXPECT(pthread_barrier_init(&all, NULL, 3) == 0);
    EXPECT(pthread_create(&threads[0], NULL, transfer, NULL) == 0);
    EXPECT(pthread_create(&threads[1], NULL, audit, NULL) == 0);
    EXPECT(pthread_create(&threads[2], NULL, report, NULL) == 0);
    reach("started");
    _exit(0);
}
